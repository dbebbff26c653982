// The hot loops of the pseudo-likelihood, compiled once per instruction set (KERNEL_NAMESPACE names the copy).
// No standard containers in here: their code could be shared by the linker with files built for older machines.
#include "literals.hpp"
#include "plan.hpp"
#include "pll_link.hpp"
#include "simd.hpp"

namespace undirected {
namespace KERNEL_NAMESPACE {
namespace {

struct Rows {
    const std::uint16_t* list;
    std::int32_t n;
};

void and_range(const Plan& plan, const std::int32_t* literals, std::int64_t n, std::int64_t first, std::int64_t n_words,
               std::uint64_t* out) {
    for (std::int64_t w = 0; w < n_words; ++w) out[w] = ~std::uint64_t(0);
    const std::int64_t tail = plan.n_rows - first * 64;
    if (tail < n_words * 64) out[n_words - 1] = ~std::uint64_t(0) >> (n_words * 64 - tail);
    for (std::int64_t k = 0; k < n; ++k) {
        const bool negated = is_negated(literals[k], plan.n_literals);
        const std::uint64_t* column = plan.columns + std::int64_t(positive_of(literals[k], plan.n_literals)) * plan.n_words + first;
        if (negated)
            for (std::int64_t w = 0; w < n_words; ++w) out[w] &= ~column[w];
        else
            for (std::int64_t w = 0; w < n_words; ++w) out[w] &= column[w];
    }
}

std::int32_t bits_to_list(const std::uint64_t* words, std::int64_t n, std::uint16_t* out) {
    std::int32_t length = 0;
    for (std::int64_t w = 0; w < n; ++w)
        for (std::uint64_t bits = words[w]; bits != 0; bits &= bits - 1) out[length++] = std::uint16_t(w * 64 + __builtin_ctzll(bits));
    return length;
}

// The chunk's rows of a context as bits, in scratch.words.
template <class T>
std::int64_t context_bits(const Plan& plan, const Scratch<T>& scratch, std::int32_t context, int chunk) {
    const std::int64_t n_words = (rows_in_chunk(plan, chunk) + 63) / 64;
    const std::int64_t first = std::int64_t(chunk) * plan.chunk_rows / 64;
    const std::int64_t* start = plan.literal_start + context;
    and_range(plan, plan.literals + start[0], start[1] - start[0], first, n_words, scratch.words);
    return n_words;
}

template <class T>
Rows find_rows(const Plan& plan, const Scratch<T>& scratch, std::int32_t context, int chunk) {
    const std::int64_t n_words = context_bits(plan, scratch, context, chunk);
    if (plan.complement[context]) {
        for (std::int64_t w = 0; w < n_words; ++w) scratch.words[w] = ~scratch.words[w];
        const std::int64_t tail = rows_in_chunk(plan, chunk) - (n_words - 1) * 64;
        scratch.words[n_words - 1] &= ~std::uint64_t(0) >> (64 - tail);
    }
    std::int32_t n = bits_to_list(scratch.words, n_words, scratch.list);
    while (n % LIST_STEP != 0) scratch.list[n++] = std::uint16_t(plan.chunk_rows);
    return {scratch.list, n};
}

template <class T>
inline Rows context_rows(const Plan& plan, const Scratch<T>& scratch, std::int32_t context, int chunk) {
    if (plan.unlisted[context]) return find_rows(plan, scratch, context, chunk);
    const std::uint64_t* start = plan.list_start + chunk * plan.n_contexts + context;
    return {plan.lists + start[0], std::int32_t(start[1] - start[0])};
}

// In a column of values, adds `weight` to the rows whose bit is set.
template <class T>
void add_by_bits(const std::uint64_t* words, std::int64_t n_words, T weight, T* column) {
    constexpr int width = Lane<T>::width;
    const Real<T> w = fill<T>(weight);
    const std::uint32_t* halves = reinterpret_cast<const std::uint32_t*>(words);
    for (std::int64_t h = 0; h < 2 * n_words; ++h) {
        const std::uint32_t bits = load<std::uint32_t>(halves + h);
        if (bits == 0) continue;
        T* at = column + h * 32;
        for (int k = 0; k < 32; k += width) {
            const Int<T> mask = spread<T>(width == 8 ? bits : bits >> k, width == 8 ? k : 0);
            store(load<Real<T>>(at + k) + (Real<T>)(mask & (Int<T>)w), at + k);
        }
    }
}

template <class T>
T sum_by_bits(const std::uint64_t* words, std::int64_t n_words, const T* column) {
    constexpr int width = Lane<T>::width;
    Real<T> s0{}, s1{}, s2{}, s3{};
    const std::uint32_t* halves = reinterpret_cast<const std::uint32_t*>(words);
    for (std::int64_t h = 0; h < 2 * n_words; ++h) {
        const std::uint32_t bits = load<std::uint32_t>(halves + h);
        if (bits == 0) continue;
        for (int k = 0; k < 32; k += 4 * width) {
            const T* at = column + h * 32 + k;
            const auto part = [&](int i) {
                const Int<T> mask = spread<T>(width == 8 ? bits : bits >> (k + i * width), width == 8 ? i * width : 0);
                return (Real<T>)(mask & load<Int<T>>(at + i * width));
            };
            s0 += part(0);
            s1 += part(1);
            s2 += part(2);
            s3 += part(3);
        }
    }
    s0 = (s0 + s1) + (s2 + s3);
    T total = 0;
    for (int k = 0; k < width; ++k) total += s0[k];
    return total;
}

// Values by row, eight columns side by side, into (or added from) columns one after another.
template <class T>
void to_columns(const T* values, std::int64_t n, std::int64_t stride, T* columns) {
    constexpr int width = Lane<T>::width;
    for (std::int64_t r = 0; r < n; r += width)
        for (int c = 0; c < LANES; c += width) {
            Real<T> m[width];
            for (int k = 0; k < width; ++k) m[k] = load<Real<T>>(values + (r + k) * LANES + c);
            transpose(m);
            for (int k = 0; k < width; ++k) store(m[k], columns + (c + k) * stride + r);
        }
}

template <class T>
void add_columns(const T* columns, std::int64_t n, std::int64_t stride, T* values) {
    constexpr int width = Lane<T>::width;
    for (std::int64_t r = 0; r < n; r += width)
        for (int c = 0; c < LANES; c += width) {
            Real<T> m[width];
            for (int k = 0; k < width; ++k) m[k] = load<Real<T>>(columns + (c + k) * stride + r);
            transpose(m);
            for (int k = 0; k < width; ++k) {
                T* at = values + (r + k) * LANES + c;
                store(load<Real<T>>(at) + m[k], at);
            }
        }
}

// Logits of one block in one chunk: every cell's weights are added in the rows of its context.
template <class T>
void forward(const Plan& plan, const Evaluation<T>& e, const Scratch<T>& scratch, int block, int chunk, T* logits) {
    const std::int64_t from = plan.block_cells[block], to = e.forward_end[block];
    const std::int64_t n = rows_in_chunk(plan, chunk), stride = plan.buffer_rows;
    Pack<T> base;
    std::int64_t split = from;  // cells worked together come first
    for (; split < to && plan.cell_way[e.forward_cells[split]] == TOGETHER; ++split)
        if (plan.complement[plan.cell_context[e.forward_cells[split]]])
            base.add(Pack<T>::at(e.weights + plan.cell_unit[e.forward_cells[split]]));
    for (std::int64_t r = 0; r < n; ++r) base.put(logits + r * LANES);
    for (std::int64_t k = from; k < split; ++k) {
        const std::int32_t cell = e.forward_cells[k], context = plan.cell_context[cell];
        Pack<T> w = Pack<T>::at(e.weights + plan.cell_unit[cell]);
        if (plan.complement[context]) w = w.minus();
        const Rows rows = context_rows(plan, scratch, context, chunk);
        for (std::int32_t i = 0; i < rows.n; ++i) {
            T* at = logits + std::int64_t(rows.list[i]) * LANES;
            Pack<T> x = Pack<T>::at(at);
            x.add(w);
            x.put(at);
        }
    }
    if (split == to) return;
    std::memset(scratch.by_column, 0, sizeof(T) * LANES * stride);
    for (std::int64_t k = split; k < to; ++k) {
        const std::int32_t cell = e.forward_cells[k], context = plan.cell_context[cell];
        const T* w = e.weights + plan.cell_unit[cell];
        if (plan.cell_way[cell] == COLUMN_BITS) {
            const std::int64_t n_words = context_bits(plan, scratch, context, chunk);
            for (unsigned lanes = plan.cell_lanes[cell]; lanes != 0; lanes &= lanes - 1) {
                const int lane = __builtin_ctz(lanes);
                add_by_bits(scratch.words, n_words, *w++, scratch.by_column + lane * stride);
            }
            continue;
        }
        const Rows rows = context_rows(plan, scratch, context, chunk);
        const int lane = __builtin_ctz(plan.cell_lanes[cell]);  // one column only
        T* const column = scratch.by_column + lane * stride;
        const T weight = w[0];
        const std::uint16_t* list = rows.list;
        const std::uint16_t* const end = list + rows.n;
        for (; list != end; list += LIST_STEP) {
            column[list[0]] += weight;
            column[list[1]] += weight;
            column[list[2]] += weight;
            column[list[3]] += weight;
        }
    }
    add_columns(scratch.by_column, n, stride, logits);
}

// Sums of a block's values over the rows of every wanted cell's context.
template <class T>
void backward(const Plan& plan, const Evaluation<T>& e, const Scratch<T>& scratch, const T* values, int block, int chunk, double* sums) {
    const std::int64_t n = rows_in_chunk(plan, chunk), stride = plan.buffer_rows;
    Pack<T> all;
    for (std::int64_t r = 0; r < n; ++r) all.add(Pack<T>::at(values + r * LANES));
    bool transposed = false;
    for (std::int64_t k = e.backward_start[block]; k < e.backward_start[block + 1]; ++k) {
        const std::int32_t cell = e.backward_cells[k], context = plan.cell_context[cell];
        double* out = sums + plan.cell_unit[cell];
        if (plan.cell_way[cell] == TOGETHER) {
            const Rows rows = context_rows(plan, scratch, context, chunk);
            Pack<T> s0, s1, s2, s3;
            for (std::int32_t i = 0; i < rows.n; i += LIST_STEP) {
                s0.add(Pack<T>::at(values + std::int64_t(rows.list[i]) * LANES));
                s1.add(Pack<T>::at(values + std::int64_t(rows.list[i + 1]) * LANES));
                s2.add(Pack<T>::at(values + std::int64_t(rows.list[i + 2]) * LANES));
                s3.add(Pack<T>::at(values + std::int64_t(rows.list[i + 3]) * LANES));
            }
            s0.add(s1);
            s2.add(s3);
            s0.add(s2);
            if (plan.complement[context]) {
                s0 = s0.minus();
                s0.add(all);
            }
            T sum[LANES];
            s0.put(sum);
            for (int lane = 0; lane < LANES; ++lane) out[lane] += double(sum[lane]);
            continue;
        }
        if (!transposed) {
            to_columns(values, n, stride, scratch.by_column);
            for (int lane = 0; lane < LANES; ++lane) scratch.by_column[lane * stride + plan.chunk_rows] = 0;
            transposed = true;
        }
        if (plan.cell_way[cell] == COLUMN_BITS) {
            const std::int64_t n_words = context_bits(plan, scratch, context, chunk);
            for (unsigned lanes = plan.cell_lanes[cell]; lanes != 0; lanes &= lanes - 1) {
                const int lane = __builtin_ctz(lanes);
                *out++ += double(sum_by_bits(scratch.words, n_words, scratch.by_column + lane * stride));
            }
            continue;
        }
        const Rows rows = context_rows(plan, scratch, context, chunk);
        const int lane = __builtin_ctz(plan.cell_lanes[cell]);  // one column only
        const T* const column = scratch.by_column + lane * stride;
        T s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        const std::uint16_t* list = rows.list;
        const std::uint16_t* const end = list + rows.n;
        for (; list != end; list += LIST_STEP) {
            s0 += column[list[0]];
            s1 += column[list[1]];
            s2 += column[list[2]];
            s3 += column[list[3]];
        }
        out[0] += double((s0 + s1) + (s2 + s3));
    }
}

template <class T>
void run_task(const Plan& plan, const Evaluation<T>& e, const Scratch<T>& scratch, int panel, int group) {
    const int block0 = plan.panel_blocks[panel], n_blocks = plan.panel_blocks[panel + 1] - block0;
    const std::int64_t stride = std::int64_t(plan.buffer_rows) * LANES;
    const int chunk0 = int(std::int64_t(group) * plan.n_chunks / plan.n_groups);
    const int chunk1 = int(std::int64_t(group + 1) * plan.n_chunks / plan.n_groups);
    T* curvature = e.pass & CURVATURE ? scratch.extra : nullptr;
    double loss = 0;
    for (int chunk = chunk0; chunk < chunk1; ++chunk) {
        for (int b = 0; b < n_blocks; ++b) forward(plan, e, scratch, block0 + b, chunk, scratch.logits + b * stride);
        if (plan.panel_binary[panel])
            link_binary(plan, e, panel, block0, group, chunk, scratch.logits, curvature, &loss);
        else
            link_categorical(plan, e, panel, group, chunk, scratch.logits, curvature, stride, &loss);
        for (int b = 0; b < n_blocks; ++b) {
            Pack<T>().put(scratch.logits + b * stride + plan.chunk_rows * LANES);  // the spare row counts for nothing
            if (curvature != nullptr) Pack<T>().put(curvature + b * stride + plan.chunk_rows * LANES);
            if (e.pass & GRADIENT)
                backward(plan, e, scratch, scratch.logits + b * stride, block0 + b, chunk, e.gradient + std::int64_t(group) * e.n_units);
            if (curvature != nullptr)
                backward(plan, e, scratch, curvature + b * stride, block0 + b, chunk, e.curvature + std::int64_t(group) * e.n_units);
        }
    }
    e.loss[std::int64_t(panel) * plan.n_groups + group] = loss;
}

}  // namespace

void run(const Plan& plan, const Evaluation<float>& e, const Scratch<float>& scratch, int panel, int group) {
    run_task(plan, e, scratch, panel, group);
}

void run(const Plan& plan, const Evaluation<double>& e, const Scratch<double>& scratch, int panel, int group) {
    run_task(plan, e, scratch, panel, group);
}

void and_columns(const Plan& plan, const std::int32_t* literals, std::int64_t n, std::int64_t first, std::int64_t n_words,
                 std::uint64_t* out) {
    and_range(plan, literals, n, first, n_words, out);
}

std::int64_t count_bits(const std::uint64_t* words, std::int64_t n) {
    std::int64_t total = 0;
    for (std::int64_t w = 0; w < n; ++w) total += __builtin_popcountll(words[w]);
    return total;
}

std::int32_t list_bits(const std::uint64_t* words, std::int64_t n, std::uint16_t* out) { return bits_to_list(words, n, out); }

}  // namespace KERNEL_NAMESPACE
}  // namespace undirected
