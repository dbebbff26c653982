// The search for features: the current network's logits, kept per (variable, row), and what one feature more, one less or
// another in its place would do to the pseudo-likelihood with all other weights held.
//
// A row matters to a feature in two ways only. Where the feature matches, the row is in the context of each of its
// variables; where exactly one variable's literals fail, it is in that variable's context alone; elsewhere it is in none.
#pragma once
#include <cstdint>
#include <vector>

#include "literals.hpp"
#include "table.hpp"

namespace undirected {

struct Gains {
    std::vector<double> weight, gain;  // of each candidate, added to the network without the feature it replaces
    std::vector<double> present;       // what each replaced feature contributes now
};

struct Generalised {
    std::vector<std::int64_t> start{0};
    std::vector<std::int32_t> literals, owner;
};

struct Joined {
    std::vector<std::int64_t> start{0};
    std::vector<std::int32_t> literals;
    std::vector<double> weight, gain;
    std::int64_t n_scored = 0;
};

struct Screened {
    std::vector<double> gradient, curvature, support;  // [n_features][n_extra]
};

class Search {
public:
    explicit Search(const Table& table);

    std::int64_t n_rows() const { return n_rows_; }
    const LiteralNumbers& numbers() const { return numbers_; }
    std::int32_t n_literals() const { return numbers_.count(); }
    std::int32_t n_lanes() const { return first_lane_.back(); }

    // Starts anew with these features and weights.
    void load(const Features& features, const double* weights, int n_threads);
    // Adds to the weight of one feature.
    void change(const std::int32_t* literals, std::int64_t n, double by);
    // One column a binary variable (state 1 against state 0), one a state of the others: [n_rows][n_lanes].
    std::vector<double> logits() const;
    // Minus the pseudo-log-likelihood.
    double loss(int n_threads) const;

    // The best weight and the gain (log-likelihood minus l1 |w| minus ridge w^2 / 2 minus `price` of its length) of every candidate. A
    // candidate with an owner takes its place: it must be the owner with some variables left out. Those that match rows of less than this
    // weight get minus infinity, and so, unless `all` are wanted, do those that can improve neither on the network as it is nor on dropping
    // the owner.
    Gains gains(const Features& candidates, const std::int32_t* owner, const Features& owners, const double* owner_weight, double min_rows,
                double l1, double ridge, const double* price, bool all, int n_threads) const;

    // For each feature, what is left of it when it must also match its nearest k rows, for every k of `sizes` (rising); each
    // outcome of two variables or more once, the longest first. `together` holds the weight of the rows in which two literals
    // are both true, and makes the distance GVDM with this power; null makes it Hamming's.
    Generalised generalise(const Features& features, const double* together, int power, const std::vector<double>& sizes,
                           int n_threads) const;

    // Gradient and curvature, at weight zero, of every feature extended by every one of the extra literals, and the weight
    // of the rows that match the whole.
    Screened screen(const Features& features, const std::int32_t* extra, std::int64_t n_extra, int n_threads) const;

    // The conjunctions, worth their price, of each feature from `first` to `last` with each before it (positive literals): those of at most
    // `most` literals in which each of the two has two or more that the other has not, and which match rows of at least this weight.
    Joined join(const Features& features, std::int64_t first, std::int64_t last, std::int64_t most, double min_rows, double l1,
                double ridge, const double* price, int n_threads) const;

private:
    struct Part {  // a feature's literals on one variable
        std::int32_t variable;
        std::int64_t first, last;  // positions in the literals
    };
    struct Spot;  // where a feature matches and where it nearly does
    struct Entries;
    struct Neighbours;                              // rows by their distance from a feature
    struct Side;                                    // some of the features that are joined
    static constexpr std::int64_t MOST_ROWS = 512;  // worked on together

    std::vector<Part> parts(const std::int32_t* literals, std::int64_t n) const;
    void misses(const Part& part, const std::int32_t* literals, std::int64_t from, std::int64_t to, std::uint64_t* out) const;
    void find(const std::int32_t* literals, std::int64_t n, std::int64_t from, std::int64_t to, Spot& spot) const;
    void apply(const std::int32_t* literals, std::int64_t n, double by, std::int64_t from, std::int64_t to, Spot& spot);
    std::vector<std::uint8_t> allowed(const Part& part, const std::int32_t* literals) const;
    double odds(const Part& part, const std::vector<std::uint8_t>& allowed, std::int64_t row) const;
    void gather(const std::int32_t* literals, const Spot& spot, const Spot* without, double weight, Entries& entries) const;
    double best_weight(const Entries& entries, double l1, double ridge, double least) const;
    double gain_at(const Entries& entries, double weight, double l1, double ridge) const;
    double matched_weight(const Spot& spot) const;
    static double most_gain(double pull, double curvature, double ridge);
    void residual(std::int32_t literal, const std::int32_t* rows, std::int64_t n, float* out) const;
    void take(const Features& features, std::int64_t first, std::int64_t last, Spot& spot, Side& side) const;
    void lay_out(Side& side, std::int64_t from, std::int64_t to) const;
    void add_slopes(Side& one, Side& other, std::vector<double>& slope) const;
    void count_once(std::int32_t literal, const Side& one, std::int64_t j, const Side& other, std::int64_t i, double* slope) const;
    bool unite(const Features& features, std::int64_t i, std::int64_t j, std::int64_t most, std::vector<std::int32_t>& both,
               std::vector<std::int32_t>& shared) const;
    float apart(const Spot& spot, const std::vector<std::vector<std::uint8_t>>& states, std::size_t p, std::int32_t state,
                const double* together, int power) const;
    void measure(const Spot& spot, const std::int32_t* literals, const double* together, int power, Neighbours& out) const;
    void shorten(const Spot& spot, const std::int32_t* literals, const std::vector<double>& sizes, Neighbours& near,
                 Generalised& out) const;
    void list_held(std::int64_t word, std::uint64_t rows, const std::int32_t* extra, std::int64_t n_extra, std::vector<std::int32_t>& held,
                   std::vector<std::int32_t>& start) const;
    void screen_some(const Features& features, std::int64_t first, std::int64_t last, const std::int32_t* extra, std::int64_t n_extra,
                     std::int64_t at, std::int64_t n_all, Screened& out) const;
    void residuals(std::int64_t word, std::uint64_t rows, const std::int32_t* extra, std::int64_t n_extra, float* residuals,
                   float* variances) const;

    std::int64_t n_rows_, n_words_, stride_;
    std::int32_t n_variables_;
    LiteralNumbers numbers_;
    bool plain_;  // every row counts one
    std::vector<std::int32_t> n_states_, first_lane_;
    std::vector<std::uint64_t> columns_, everywhere_;
    std::vector<double> row_weight_, logits_;  // logits: [n_lanes][stride]
    std::vector<float> row_weight_single_;
};

}  // namespace undirected
