// Beliefs about the attributes of linked entities, changed one attribute at a time.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace undirected {

class RelationField {
public:
    // A type: entities by active states, where the active states of each attribute begin (and the last end), and for each active state
    // the weights of the columns of the design.
    struct Type {
        std::int64_t n, width;
        std::vector<double> values;
        std::vector<std::int32_t> starts;
        std::int64_t design;
        std::vector<double> weights;
        std::vector<std::int32_t> blocks;
    };
    // Sums of a type's values over the entities that each row reaches, and for each entity of the type the rows that reach it.
    struct Reach {
        std::int32_t source;
        std::int64_t n;
        std::vector<double> sums;
        std::vector<std::int64_t> start;
        std::vector<std::int32_t> rows;
    };
    // Columns of a design: columns `first` to `last` of the sums of a reach (or of the values of `end`, without one), looked up in `rows`
    // (the entity's own, without), less the entity's own values where `own` says so.
    struct Block {
        std::int64_t at;
        std::int32_t first, last, end, reach;
        std::vector<std::int32_t> rows;
        std::vector<std::uint8_t> own;
    };
    struct Change {
        double largest, energy;
    };

    std::int32_t add_type(Type type);
    std::int32_t add_reach(Reach reach);
    void add_block(std::int32_t type, Block block);
    void set_weights(std::int32_t type, const double* weights);

    const std::vector<Type>& types() const { return types_; }
    const std::vector<Reach>& reaches() const { return reaches_; }

    // Attributes one after another, each from all others as they stand: the largest change of a probability, and how much the free energy
    // rose, which it never does but for rounding.
    Change sweep(const std::int32_t* cells, std::int64_t n);

    // Attributes one after another, each drawn given all others by a number from 0 to 1; `chances` gets the probabilities of the active
    // states, one attribute after another.
    void draw(const std::int32_t* cells, std::int64_t n, const double* uniform, double* chances);

private:
    void find_chances(const Type& type, std::int32_t entity, std::int32_t from, std::int32_t to);
    double look_up(const Type& type, std::int32_t entity, const double* weights) const;
    void set_value(std::int32_t number, std::int32_t entity, std::int32_t column, double value);

    std::vector<Type> types_;
    std::vector<Reach> reaches_;
    std::vector<Block> blocks_;
    std::vector<std::vector<std::int32_t>> of_source_;  // the reaches of each type's values
    std::vector<double> logits_, chances_;
};

}  // namespace undirected
