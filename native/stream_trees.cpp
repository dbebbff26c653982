#include "stream_trees.hpp"

#include "pool.hpp"

namespace undirected {

void count_at_leaves(const Uncommon& rows, const Forest& forest, double* count, double* seen, int n_threads) {
    const CodeTable& table = rows.table;
    parallel_for(forest.n_trees, n_threads, [&](std::int64_t t) {
        const std::int64_t root = forest.start[t];
        const std::int32_t v = forest.targets[t], k = table.n_states[v];
        const std::int16_t* target = table.codes + v * table.n_rows;
        for (std::int64_t r = 0; r < table.n_rows; ++r) {
            const double weight = table.row_weight[r];
            std::int64_t node = root;
            for (;;) {
                count[forest.count_start[node] + target[r]] += weight;
                if (forest.test[node] < 0) break;
                const std::int32_t literal = forest.test[node];
                const bool holds = table.codes[rows.numbers.variable(literal) * table.n_rows + r] == rows.numbers.state(literal);
                node = root + (holds ? forest.yes[node] : forest.no[node]);
            }
            if (forest.block[node] < 0) continue;
            double* own = seen + forest.block[node] + target[r];
            for (std::int64_t i = rows.start[r]; i < rows.start[r + 1]; ++i) own[std::int64_t(rows.literals[i]) * k] += weight;
        }
    });
}

}  // namespace undirected
