/* What the products of training read: items, float32, or bfloat16 in files that define ITEMS_BF16.
 *
 * A kernel is written once and compiled for both. Products take k from both operands PAIR at a time, so in bfloat16 two
 * neighboring k lie side by side: a panel is (depth / PAIR, PANEL, PAIR). An odd depth is filled up with a k of zeros in
 * the panel; the other operand must be finite there. Sums are float32 either way.
 */
#ifndef ELMOKIT_ITEMS_H
#define ELMOKIT_ITEMS_H

#include "pairs.h"

#if defined(ITEMS_BF16)

typedef uint16_t item;
typedef ivec item_vec;   /* pairs of LANES columns */
typedef int32_t item_pair; /* of one row */
enum { PAIR = 2 };
#define ITEM_KERNEL(name) KERNEL(name##_bf16)

INLINE item to_item(float value) { return to_bf16(value); }

INLINE void store_items_part(item *to, vec value, long count) {
    const halves rounded = round_lanes(value);
    memcpy(to, &rounded, (size_t)count * sizeof *to);
}

INLINE item_vec load_panel(const item *from) {
    item_vec loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

INLINE item_pair load_pair(const item *from) {
    item_pair loaded;
    memcpy(&loaded, from, sizeof loaded);
    return loaded;
}

INLINE vec add_product(vec sum, item_vec weights, item_pair value) { return add_bf16_pair(sum, weights, value); }

#else

typedef float item;
typedef vec item_vec;
typedef vec item_pair; /* one number in every lane */
enum { PAIR = 1 };
#define ITEM_KERNEL(name) KERNEL(name)

INLINE item to_item(float value) { return value; }
INLINE void store_items_part(item *to, vec value, long count) { store_part(to, value, count); }
INLINE item_vec load_panel(const item *from) { return load(from); }
INLINE item_pair load_pair(const item *from) { return everywhere(*from); }
INLINE vec add_product(vec sum, item_vec weights, item_pair value) { return sum + value * weights; }

#endif

INLINE void store_items(item *to, vec value) { store_items_part(to, value, LANES); }

INLINE void copy_items(item *to, const float *from, long count) {
    for (long at = 0; at < count; at += LANES) {
        const long part = count - at < LANES ? count - at : LANES;
        store_items_part(to + at, load_part(from + at, part), part);
    }
}

INLINE long whole_pairs(long count) { return (count + PAIR - 1) / PAIR * PAIR; }

#endif
