// Eight values at a time, in the compilers' own vector types (GCC and Clang), so that one source serves every machine.
// Included by the kernels that are compiled per instruction set; everything here has internal linkage.
#pragma once
#include <cstdint>
#include <cstring>

namespace {

template <class T>
struct Lane;

template <>
struct Lane<float> {
    typedef float Real __attribute__((vector_size(32)));
    typedef std::int32_t Int __attribute__((vector_size(32)));
    static constexpr int width = 8, parts = 1;
    // exp(r) for |r| <= ln(2) / 2 and log(1 + t) / t for t in [0, 1]: Chebyshev fits, relative errors 1.1e-8 and 5e-9.
    static constexpr float exp_terms[] = {1.0f,          1.000000011f,    0.5000000014f,  0.1666650461f,
                                          0.0416664642f, 0.008369220292f, 0.001393373072f};
    static constexpr float log_terms[] = {0.9999999947f,  -0.4999989265f, 0.333297105f,    -0.2495161626f, 0.1966327426f,
                                          -0.1526966707f, 0.105436238f,   -0.05637361283f, 0.01954252726f, -0.003176057018f};
    static constexpr float lowest = -86.0f;
    static constexpr int mantissa = 23;
    static constexpr float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
};

template <>
struct Lane<double> {
    typedef double Real __attribute__((vector_size(32)));
    typedef std::int64_t Int __attribute__((vector_size(32)));
    static constexpr int width = 4, parts = 2;
    // Series: exp(r) in r, area tangent(s) / s in the square of s.
    static constexpr double exp_terms[] = {
        1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
        1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    static constexpr double log_terms[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17,
                                           1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25, 1.0 / 27, 1.0 / 29, 1.0 / 31, 1.0 / 33, 1.0 / 35};
    static constexpr double lowest = -700.0;
    static constexpr int mantissa = 52;
    static constexpr double round = 6755399441055744.0;  // 1.5 * 2^52
    static constexpr double ln2_high = 6.93145751953125e-1, ln2_low = 1.42860682030941723212e-6;
};

template <class T>
using Real = typename Lane<T>::Real;
template <class T>
using Int = typename Lane<T>::Int;

template <class V, class T>
inline V load(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

template <class V, class T>
inline void store(const V& v, T* to) {
    std::memcpy(to, &v, sizeof v);
}

// Eight values: one vector of floats or two of doubles.
template <class T>
struct Pack;

template <>
struct Pack<float> {
    Real<float> a{};
    static inline Pack at(const float* from) { return {load<Real<float>>(from)}; }
    inline void put(float* to) const { store(a, to); }
    inline void add(const Pack& x) { a += x.a; }
    inline Pack minus() const { return {-a}; }
};

template <>
struct Pack<double> {
    Real<double> a{}, b{};
    static inline Pack at(const double* from) { return {load<Real<double>>(from), load<Real<double>>(from + 4)}; }
    inline void put(double* to) const {
        store(a, to);
        store(b, to + 4);
    }
    inline void add(const Pack& x) {
        a += x.a;
        b += x.b;
    }
    inline Pack minus() const { return {-a, -b}; }
};

template <class T>
inline Real<T> fill(T value) {
    return Real<T>{} + value;
}

template <class T>
inline Real<T> choose(Int<T> mask, Real<T> yes, Real<T> no) {
    return (Real<T>)((mask & (Int<T>)yes) | (~mask & (Int<T>)no));
}

template <class T, int N>
inline Real<T> polynomial(const T (&terms)[N], Real<T> x) {
    Real<T> sum = fill<T>(terms[N - 1]);
    for (int k = N - 2; k >= 0; --k) sum = sum * x + terms[k];
    return sum;
}

// exp of values that are zero or negative.
template <class T>
inline Real<T> exp_negative(Real<T> x) {
    using L = Lane<T>;
    x = choose<T>(x < fill<T>(L::lowest), fill<T>(L::lowest), x);
    const Real<T> shifted = x * T(1.44269504088896340736) + L::round;
    const Real<T> n = shifted - L::round;
    const Real<T> r = (x - n * L::ln2_high) - n * L::ln2_low;
    return (Real<T>)((Int<T>)polynomial<T>(L::exp_terms, r) + ((Int<T>)shifted << L::mantissa));
}

// log(1 + t) for t in [0, 1].
template <class T>
inline Real<T> log1p_unit(Real<T> t);

template <>
inline Real<float> log1p_unit<float>(Real<float> t) {
    return t * polynomial<float>(Lane<float>::log_terms, t);
}

template <>
inline Real<double> log1p_unit<double>(Real<double> t) {
    const Real<double> s = t / (t + 2.0);
    return 2.0 * s * polynomial<double>(Lane<double>::log_terms, s * s);
}

// All bits set in lane k where bit k (from bit `shift` on) is set.
template <class T>
inline Int<T> spread(std::uint32_t bits, int shift);

template <>
inline Int<float> spread<float>(std::uint32_t bits, int shift) {
    const Int<float> one = {1, 2, 4, 8, 16, 32, 64, 128};
    const Int<float> bit = one << shift;
    return ((Int<float>{} + std::int32_t(bits)) & bit) == bit;
}

template <>
inline Int<double> spread<double>(std::uint32_t bits, int shift) {
    const Int<double> one = {1, 2, 4, 8};
    const Int<double> bit = one << shift;
    return ((Int<double>{} + std::int64_t(bits)) & bit) == bit;
}

// The values at these places of two vectors, one after the other. (Both compilers have had the one used here from the start; GCC knows
// Clang's only from version 12 on.)
template <int... Places, class V>
inline V shuffle(V a, V b) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, Places...);
#else
    typedef decltype(a < b) Index;
    return __builtin_shuffle(a, b, Index{Places...});
#endif
}

// A square of values with rows and columns exchanged: out[k] = {in[0][k], in[1][k], ...}.
inline void transpose(Real<float>* m) {
    Real<float> t[8];
    for (int k = 0; k < 8; k += 2) {
        t[k] = shuffle<0, 8, 1, 9, 4, 12, 5, 13>(m[k], m[k + 1]);
        t[k + 1] = shuffle<2, 10, 3, 11, 6, 14, 7, 15>(m[k], m[k + 1]);
    }
    Real<float> u[8];
    for (int k = 0; k < 8; k += 4) {
        u[k] = shuffle<0, 1, 8, 9, 4, 5, 12, 13>(t[k], t[k + 2]);
        u[k + 1] = shuffle<2, 3, 10, 11, 6, 7, 14, 15>(t[k], t[k + 2]);
        u[k + 2] = shuffle<0, 1, 8, 9, 4, 5, 12, 13>(t[k + 1], t[k + 3]);
        u[k + 3] = shuffle<2, 3, 10, 11, 6, 7, 14, 15>(t[k + 1], t[k + 3]);
    }
    for (int k = 0; k < 4; ++k) {
        m[k] = shuffle<0, 1, 2, 3, 8, 9, 10, 11>(u[k], u[k + 4]);
        m[k + 4] = shuffle<4, 5, 6, 7, 12, 13, 14, 15>(u[k], u[k + 4]);
    }
}

inline void transpose(Real<double>* m) {
    Real<double> t[4];
    for (int k = 0; k < 4; k += 2) {
        t[k] = shuffle<0, 4, 2, 6>(m[k], m[k + 1]);
        t[k + 1] = shuffle<1, 5, 3, 7>(m[k], m[k + 1]);
    }
    for (int k = 0; k < 2; ++k) {
        m[k] = shuffle<0, 1, 4, 5>(t[k], t[k + 2]);
        m[k + 2] = shuffle<2, 3, 6, 7>(t[k], t[k + 2]);
    }
}

}  // namespace
