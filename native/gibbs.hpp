// Gibbs sampling of many chains at once, each with evidence of its own.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "gibbs_kernels.hpp"
#include "model.hpp"

namespace undirected {

struct Compiled;

class Sampler {
public:
    // Chain i has the evidence of row row_of[i] (a byte a literal, set where the state is allowed) and starts at states[i].
    // Variables are visited in the order given.
    Sampler(const Model& model, std::vector<std::uint8_t> evidence, std::vector<std::int32_t> row_of, std::vector<std::int16_t> states,
            std::vector<std::int32_t> order, std::uint64_t seed);
    ~Sampler();

    void run(std::int64_t n_sweeps, const float* beta, const float* reference, bool collect, bool anneal, bool greedy, int n_threads);
    void scores(double* out, int n_threads) const;  // log-probabilities of the chains' states, not normalised
    void reset();                                   // forget what was collected

    std::int64_t n_chains() const { return std::int64_t(row_of_.size()); }
    const std::vector<std::int16_t>& states() const { return states_; }
    const std::vector<float>& sums() const { return sums_; }
    const std::vector<float>& squares() const { return squares_; }
    const std::vector<double>& log_weights() const { return log_weight_; }

private:
    std::shared_ptr<const Compiled> compiled(std::int64_t block) const;
    std::vector<std::uint64_t> pack(const Compiled& made, std::int64_t block) const;
    void unpack(const Compiled& made, std::int64_t block, const Chains& chains, bool collect, std::int64_t n_sweeps);
    void run_block(std::int64_t block, const Schedule& schedule);

    const Model& model_;
    std::vector<std::uint8_t> evidence_;
    std::vector<std::int32_t> row_of_, order_;
    std::vector<std::int16_t> states_;
    std::vector<std::uint32_t> random_;
    std::vector<float> sums_, squares_, beta_;
    std::vector<double> log_weight_;
    std::shared_ptr<const Compiled> shared_;  // if all chains have the same evidence
};

}  // namespace undirected
