// From logits to residuals and variances, for the kernels of the pseudo-likelihood: compiled once per instruction set with them.
#pragma once
#include "plan.hpp"
#include "simd.hpp"

namespace undirected {
namespace KERNEL_NAMESPACE {
namespace {

inline std::int64_t rows_in_chunk(const Plan& plan, int chunk) {
    const std::int64_t left = plan.n_rows - std::int64_t(chunk) * plan.chunk_rows;
    return left < plan.chunk_rows ? left : plan.chunk_rows;
}

inline const double* weights_of(const Plan& plan, double) { return plan.row_weight; }
inline const float* weights_of(const Plan& plan, float) { return plan.row_weight_single; }

// Place of a row among the sampled ones.
template <class T>
inline std::int64_t sampled(const Evaluation<T>& e, std::int64_t row) {
    return row / 64 / e.stride * 64 + row % 64;
}

inline int lanes_used(const Plan& plan, int panel) { return plan.panel_variables[panel + 1] - plan.panel_variables[panel]; }

// Binary variables, eight to a block: logits become residuals (weight times probability minus truth), and `curvature`,
// where given, weight times variance.
template <class T>
void link_binary(const Plan& plan, const Evaluation<T>& e, int panel, int block, int group, int chunk, T* logits, T* curvature,
                 double* loss) {
    using L = Lane<T>;
    const std::int64_t first = std::int64_t(chunk) * plan.chunk_rows, n = rows_in_chunk(plan, chunk);
    const T* weight = weights_of(plan, T()) + first;
    const std::uint8_t* truth = plan.truth + std::int64_t(block) * plan.n_rows + first;
    const int used = lanes_used(plan, panel);
    double total[LANES] = {};
    Real<T> running[L::parts] = {};
    for (std::int64_t r = 0; r < n; ++r) {
        const T c = weight[r];
        for (int part = 0; part < L::parts; ++part) {
            const int lane = part * L::width;
            T* at = logits + r * LANES + lane;
            const Real<T> d = load<Real<T>>(at);
            const Int<T> positive = d > T(0);
            const Real<T> minus = choose<T>(positive, -d, d);
            const Real<T> t = exp_negative<T>(minus);
            const Real<T> larger = T(1) / (t + T(1));
            const Real<T> smaller = t * larger;
            const Real<T> p = choose<T>(positive, larger, smaller);
            const Int<T> is_true = spread<T>(truth[r], lane);
            const Int<T> agrees = ~(positive ^ is_true);
            const Real<T> term = log1p_unit<T>(t) - choose<T>(agrees, Real<T>{}, minus);
            running[part] += term * c;
            if (e.pass & TERMS)
                for (int k = 0; k < L::width && lane + k < used; ++k)
                    e.row_terms[std::int64_t(panel) * plan.n_rows + first + r] -= double(term[k]);
            if (e.pass & PROBABILITY && (first + r) / 64 % e.stride == 0)
                for (int k = 0; k < L::width; ++k) e.probability[(block * LANES + lane + k) * e.n_sampled + sampled(e, first + r)] = p[k];
            const Real<T> variance = larger * smaller * c;
            store((p - choose<T>(is_true, fill<T>(1), Real<T>{})) * c, at);
            if (curvature != nullptr) store(variance, curvature + r * LANES + lane);
        }
        if ((r & 63) == 63 || r + 1 == n)
            for (int part = 0; part < L::parts; ++part) {
                for (int k = 0; k < L::width; ++k) total[part * L::width + k] += double(running[part][k]);
                running[part] = Real<T>{};
            }
    }
    for (int lane = 0; lane < used; ++lane) {
        *loss += total[lane];
        if (e.pass & TERMS) {
            const PanelVariable& v = plan.variables[plan.panel_variables[panel] + lane];
            e.variable_terms[std::int64_t(group) * e.n_variables + v.variable] -= total[lane];
        }
    }
}

// Variables with more than two states: a softmax over each variable's columns, which may span several blocks.
// `logits` and `curvature` are the panel's blocks one after another, `stride` values apart.
template <class T>
void link_categorical(const Plan& plan, const Evaluation<T>& e, int panel, int group, int chunk, T* logits, T* curvature,
                      std::int64_t stride, double* loss) {
    const std::int64_t first = std::int64_t(chunk) * plan.chunk_rows, n = rows_in_chunk(plan, chunk);
    const int block0 = plan.panel_blocks[panel];
    const T* weight = weights_of(plan, T()) + first;
    const auto at = [&](T* base, std::int64_t r, int lane) -> T& { return base[(lane / LANES) * stride + r * LANES + lane % LANES]; };
    for (std::int64_t r = 0; r < n; ++r) {
        double row = 0;
        for (int v = plan.panel_variables[panel]; v < plan.panel_variables[panel + 1]; ++v) {
            const PanelVariable& var = plan.variables[v];
            T top = at(logits, r, var.lane);
            for (int s = 1; s < var.n_states; ++s) {
                const T x = at(logits, r, var.lane + s);
                if (x > top) top = x;
            }
            T seen = 0;
            for (int s = 0; s < var.n_states; ++s) {
                const int lane = var.lane + s;
                T& x = at(logits, r, lane);
                x -= top;
                if (plan.truth[std::int64_t(block0 + lane / LANES) * plan.n_rows + first + r] >> (lane % LANES) & 1) seen = x;
            }
            T sum = 0;
            const int from = var.lane / LANES * LANES;
            for (int lane = from; lane < var.lane + var.n_states; lane += Lane<T>::width) {
                if (lane + Lane<T>::width <= var.lane) continue;
                // A vector may hold columns of a neighbour variable: they are computed and ignored.
                Real<T> x;
                std::memcpy(&x, &at(logits, r, lane), sizeof x);
                x = exp_negative<T>(choose<T>(x > T(0), Real<T>{}, x));
                for (int k = 0; k < Lane<T>::width; ++k)
                    if (lane + k >= var.lane && lane + k < var.lane + var.n_states) {
                        at(logits, r, lane + k) = x[k];
                        sum += x[k];
                    }
            }
            const double term = double(seen) - __builtin_log(double(sum));
            *loss -= term * double(weight[r]);
            row += term;
            if (e.pass & TERMS) e.variable_terms[std::int64_t(group) * e.n_variables + var.variable] += term * double(weight[r]);
            const T scale = T(1) / sum;
            for (int s = 0; s < var.n_states; ++s) {
                const int lane = var.lane + s;
                T& x = at(logits, r, lane);
                const T p = x * scale;
                const bool is_true = plan.truth[std::int64_t(block0 + lane / LANES) * plan.n_rows + first + r] >> (lane % LANES) & 1;
                if (e.pass & PROBABILITY && (first + r) / 64 % e.stride == 0)
                    e.probability[(block0 * LANES + lane) * e.n_sampled + sampled(e, first + r)] = p;
                if (curvature != nullptr) at(curvature, r, lane) = p * (T(1) - p) * weight[r];
                x = (p - T(is_true)) * weight[r];
            }
        }
        if (e.pass & TERMS) e.row_terms[std::int64_t(panel) * plan.n_rows + first + r] = row;
    }
}

}  // namespace
}  // namespace KERNEL_NAMESPACE
}  // namespace undirected
