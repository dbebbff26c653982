#include "clusternet.hpp"

#include <algorithm>
#include <cmath>

#include "hash.hpp"

namespace undirected {
namespace {

// The conjunctions of all clusters, those given and those made, and where each cluster's are.
class Members {
public:
    Members(std::int32_t n_clusters, const Clustered& given) : by_cluster(n_clusters), cluster_(given.cluster, given.cluster + given.n) {
        start_.assign(given.start, given.start + given.n + 1);
        literals_.assign(given.literals, given.literals + start_.back());
        for (std::int64_t k = 0; k < given.n; ++k) by_cluster[cluster_[k]].push_back(std::int32_t(k));
    }

    std::int64_t size() const { return std::int64_t(cluster_.size()); }
    std::int32_t cluster(std::int64_t k) const { return cluster_[k]; }
    const std::int32_t* begin(std::int64_t k) const { return literals_.data() + start_[k]; }
    const std::int32_t* end(std::int64_t k) const { return literals_.data() + start_[k + 1]; }

    void add(std::int32_t cluster, const std::vector<std::int32_t>& literals) {
        by_cluster[cluster].push_back(std::int32_t(size()));
        cluster_.push_back(cluster);
        literals_.insert(literals_.end(), literals.begin(), literals.end());
        start_.push_back(std::int64_t(literals_.size()));
    }

    std::vector<std::vector<std::int32_t>> by_cluster;

private:
    std::vector<std::int32_t> cluster_, literals_;
    std::vector<std::int64_t> start_;
};

// Which conjunctions are in which cluster already, by open addressing.
class Index {
public:
    explicit Index(const Members& members) : members_(members), slot_(64, -1) {
        for (std::int64_t k = 0; k < members.size(); ++k) add(k);
    }

    bool holds(std::int32_t cluster, const std::vector<std::int32_t>& literals) const {
        for (std::size_t place = hash_of(cluster, literals.data(), literals.data() + literals.size());; ++place) {
            const std::int32_t k = slot_[place & (slot_.size() - 1)];
            if (k < 0) return false;
            if (members_.cluster(k) == cluster && std::equal(literals.begin(), literals.end(), members_.begin(k), members_.end(k)))
                return true;
        }
    }

    void add(std::int64_t k) {
        if (2 * ++filled_ > slot_.size()) {
            slot_.assign(2 * slot_.size(), -1);
            for (std::int64_t j = 0; j < k; ++j) put(j);
        }
        put(k);
    }

private:
    static std::size_t hash_of(std::int32_t cluster, const std::int32_t* begin, const std::int32_t* end) {
        std::uint64_t h = mix(~std::uint64_t(cluster));
        for (; begin != end; ++begin) h += mix(std::uint64_t(*begin));
        return mix(h);
    }

    void put(std::int64_t k) {
        std::size_t place = hash_of(members_.cluster(k), members_.begin(k), members_.end(k));
        while (slot_[place & (slot_.size() - 1)] >= 0) ++place;
        slot_[place & (slot_.size() - 1)] = std::int32_t(k);
    }

    const Members& members_;
    std::vector<std::int32_t> slot_;
    std::size_t filled_ = 0;
};

// The literals of largest and of smallest support above zero, the lowest of equals; -1 where none has any.
struct Extremes {
    std::int32_t high = -1, low = -1;
};

template <class Literals>
Extremes find_extremes(const Literals& literals, const std::int32_t* count) {
    Extremes out;
    for (const std::int32_t literal : literals) {
        if (count[literal] <= 0) continue;
        if (out.high < 0 || count[literal] > count[out.high]) out.high = literal;
        if (out.low < 0 || count[literal] < count[out.low]) out.low = literal;
    }
    return out;
}

// A conjunction's literals, to be gone through.
struct Span {
    const std::int32_t *from, *to;
    const std::int32_t* begin() const { return from; }
    const std::int32_t* end() const { return to; }
};

}  // namespace

NewInClusters clusternet_generate(std::int32_t n_clusters, const Clustered& initial, const Clustered& fresh, std::int32_t n_literals,
                                  std::int64_t rounds, std::int64_t alpha, Support support, std::uint64_t seed) {
    const Members first(n_clusters, initial);
    Members made(n_clusters, fresh);
    Index index(made);
    std::vector<std::int32_t> every(n_literals);
    for (std::int32_t literal = 0; literal < n_literals; ++literal) every[literal] = literal;
    std::vector<std::int32_t> counts(std::size_t(n_clusters) * n_literals, 0);
    const auto count = [&](const Members& members, std::int64_t k) {
        std::int32_t* own = counts.data() + std::size_t(members.cluster(k)) * n_literals;
        for (const std::int32_t* x = members.begin(k); x != members.end(k); ++x) ++own[*x];
    };
    for (std::int64_t k = 0; k < first.size(); ++k) count(first, k);
    if (support == Support::whole)
        for (std::int64_t k = 0; k < made.size(); ++k) count(made, k);
    std::vector<std::int64_t> shares(n_clusters);
    std::vector<std::int32_t> candidate;
    for (std::int64_t round = 1; round <= rounds; ++round) {
        const double total = double(first.size() + made.size());
        for (std::int32_t c = 0; c < n_clusters; ++c)
            shares[c] =
                std::int64_t(std::floor(double(alpha) * double(first.by_cluster[c].size() + made.by_cluster[c].size()) / total + 0.5));
        for (std::int32_t c = 0; c < n_clusters; ++c) {
            const auto& rows = first.by_cluster[c];
            if (rows.empty() || shares[c] == 0) continue;
            const std::int64_t n_made = std::int64_t(made.by_cluster[c].size()), before = made.size();
            const std::int32_t* own = counts.data() + std::size_t(c) * n_literals;
            const Extremes whole = support == Support::own ? Extremes{} : find_extremes(every, own);
            const RandomStream random(seed, std::uint64_t(round) * std::uint64_t(n_clusters) + std::uint64_t(c));
            for (std::int64_t t = 0; t < shares[c]; ++t) {
                const bool from_rows = n_made == 0 || random.below(2 * std::uint64_t(t), rounds) < rounds - round;
                const std::int64_t k = from_rows ? rows[random.below(2 * std::uint64_t(t) + 1, std::int64_t(rows.size()))]
                                                 : made.by_cluster[c][random.below(2 * std::uint64_t(t) + 1, n_made)];
                const Members& members = from_rows ? first : made;
                const Span drawn{members.begin(k), members.end(k)};
                const Extremes found = support == Support::own ? find_extremes(drawn, own) : whole;
                for (const std::int32_t left_out : {found.high, found.low}) {
                    const Span now{members.begin(k), members.end(k)};  // adding may have moved them
                    candidate.clear();
                    std::copy_if(now.begin(), now.end(), std::back_inserter(candidate), [&](std::int32_t x) { return x != left_out; });
                    if (candidate.empty() || candidate.size() == std::size_t(now.to - now.from) || index.holds(c, candidate)) continue;
                    made.add(c, candidate);
                    index.add(made.size() - 1);
                }
            }
            if (support == Support::whole)
                for (std::int64_t k = before; k < made.size(); ++k) count(made, k);
        }
    }
    NewInClusters out;
    out.start.push_back(0);
    for (std::int64_t k = fresh.n; k < made.size(); ++k) {
        out.cluster.push_back(made.cluster(k));
        out.literals.insert(out.literals.end(), made.begin(k), made.end(k));
        out.start.push_back(std::int64_t(out.literals.size()));
    }
    return out;
}

}  // namespace undirected
