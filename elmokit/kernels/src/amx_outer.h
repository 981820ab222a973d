/* The products of outer.h by AMX.
 *
 * All rows are transposed first, so that neighboring k lie side by side. Sums of a group of panels stay in the second-level
 * cache until every k is added.
 */
#ifndef ELMOKIT_AMX_OUTER_H
#define ELMOKIT_AMX_OUTER_H

enum { PANELS_AT_ONCE = 16 };

/* Columns of `depth` rows: neighboring k of a column side by side, filled up to a whole pair. */
static void transpose_rows(const item *rows, long stride, long depth, long num_columns, item *to) {
    const long whole = whole_pairs(depth);
    for (long k = 0; k < depth; k += PAIR) {
        const item *even = rows + k * stride, *odd = even + stride;
        const int has_odd = k + 1 < depth;
        for (long column = 0; column < num_columns; column++) {
            const uint32_t pair = even[column] | (has_odd ? (uint32_t)odd[column] << 16 : 0);
            memcpy(to + column * whole + k, &pair, sizeof pair);
        }
    }
}

/* Part of a panel whose rows lie one after the other, as panels.h has it. */
static void pair_rows(const item *panel, long depth, item *paired) {
    for (long k = 0; k < depth; k += PAIR) {
        const __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(panel + k * PANEL)));
        const __m512i odd =
            k + 1 < depth ? _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(panel + (k + 1) * PANEL)))
                          : _mm512_setzero_si512();
        _mm512_storeu_si512(paired + k * PANEL, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

static void multiply_outer(const item *rows, long stride, const item *panels, long panel_rows, long num_rows,
                           long num_columns, long num_panels, item *tiles, float *out, int accumulate) {
    item paired[2][DEPTH * PANEL] __attribute__((aligned(64)));
    for (long k = 0; k < num_rows; k += DEPTH)
        transpose_rows(rows + k * stride, stride, smaller_of(num_rows - k, DEPTH), num_columns, tiles + k * num_columns);
    for (long group = 0; group < num_panels; group += PANELS_AT_ONCE) {
        const long end = smaller_of(num_panels, group + PANELS_AT_ONCE);
        for (long k = 0; k < num_rows; k += DEPTH) {
            const long depth = smaller_of(num_rows - k, DEPTH), pitch = whole_pairs(depth);
            for (long q = group, count; q < end; q += count) {
                count = smaller_of(end - q, 2);
                for (long p = 0; p < count; p++) pair_rows(panels + ((q + p) * panel_rows + k) * PANEL, depth, paired[p]);
                for (long first = 0; first < num_columns; first += BLOCK_ROWS) {
                    float *to = out + (q * num_columns + first) * PANEL;
                    const struct block block = {paired[0], tiles + k * num_columns + first * pitch,
                                                DEPTH * PANEL, pitch,
                                                accumulate || k ? to : NULL, to,
                                                PANEL, num_columns * PANEL,
                                                PANEL, num_columns * PANEL, paired[0]};
                    multiply_block(block, smaller_of(num_columns - first, BLOCK_ROWS), depth, PANEL, count);
                }
            }
        }
    }
}

#endif
