// How many rows features hold in, and the slope of the pseudo-log-likelihood along features that are not in the network.
#pragma once
#include "table.hpp"

namespace undirected {

// `residual` [n_literals][n_rows]: weight of the row times (1 if the literal holds, else 0, minus its probability given the rest of the
// row). A feature's slope adds, for each of its variables, the residuals of that variable's literals over the rows in which the literals
// of all others hold; `square` adds the squares of what each row adds to the slope (a row of weight w being w rows).
void find_slopes(const Table& table, const Features& features, const double* residual, double* slope, double* square, int n_threads);

// The weight of the rows in which all literals of a feature hold.
void find_support(const Table& table, const Features& features, double* support, int n_threads);

}  // namespace undirected
