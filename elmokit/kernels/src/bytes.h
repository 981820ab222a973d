/* Products with weights and inputs of eight bits each, for CPUs that add up four of them in one instruction (VNNI).
 *
 * The instruction multiplies unsigned with signed bytes, so weights are stored with 128 added. With inputs q of a row
 *
 *     sum of w q  =  sum of (w + 128) q  -  128 (sum of q)
 *
 * and the last sum is known since the row was quantized. All sums are whole numbers that fit 32 bits, so they depend
 * neither on their order nor on the instruction: the portable twin gives the same bits, for tests alone.
 *
 * Slices are those of int8.h, with scales of their own. The packed weight is, slice by slice, (outputs / TILE,
 * columns / 4, TILE, 4). Inputs are filled up with zeros to a multiple of four columns.
 */
#ifndef ELMOKIT_BYTES_H
#define ELMOKIT_BYTES_H

#include "int8.h"

enum {
    OFFSET = 128,      /* added to weights */
    BYTE_LEVELS = 127, /* of inputs: 512 * 255 * 127 fits 32 bits */
    BYTE_ROWS = 8,     /* most rows at once; with two tiles 16 sums, half of the registers of AVX-512 */
    BYTE_SUMS = 16
};

/* One row of inputs in one slice. */
struct byte_row {
    int8_t values[SLICE];
    int32_t total; /* sum of values */
};

typedef int32_t tile_sums __attribute__((vector_size(4 * TILE)));

/* Each output's sum + the products of its four weights with four inputs. */
INLINE tile_sums add_quad(tile_sums sum, const uint8_t *weight, int32_t input) {
    tile_sums weights;
    memcpy(&weights, weight, sizeof weights);
#if defined(__AVX512VNNI__)
    return (tile_sums)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, _mm512_set1_epi32(input));
#else
    for (int byte = 0; byte < 4; byte++)
        sum += ((weights >> 8 * byte) & 255) * (int8_t)((uint32_t)input >> 8 * byte);
    return sum;
#endif
}

INLINE int32_t load_input_quad(const int8_t *inputs) {
    int32_t quad;
    memcpy(&quad, inputs, sizeof quad);
    return quad;
}

/* As multiply_int8_tile: `rows` and `tiles` are constants. */
INLINE void multiply_bytes_tile(const uint8_t *weight, long tile_size, const float *weight_scales,
                                const struct byte_row *inputs, const float *input_scales, long num_quads,
                                const float *from, long from_stride, float *out, long stride, const int rows,
                                const int tiles) {
    tile_sums totals[BYTE_SUMS];
    UNROLL for (int sum = 0; sum < rows * tiles; sum++) totals[sum] = (tile_sums){0};
    for (long quad = 0; quad < num_quads; quad++)
        UNROLL for (int row = 0; row < rows; row++) {
            const int32_t input = load_input_quad(inputs[row].values + 4 * quad);
            UNROLL for (int tile = 0; tile < tiles; tile++)
                totals[row * tiles + tile] =
                    add_quad(totals[row * tiles + tile], weight + tile * tile_size + quad * 4 * TILE, input);
        }
    UNROLL for (int row = 0; row < rows; row++)
        UNROLL for (int tile = 0; tile < tiles; tile++) {
            const tile_sums total = totals[row * tiles + tile] - OFFSET * inputs[row].total;
            const float *scales = weight_scales + tile * TILE, *base = from + row * from_stride + tile * TILE;
            float values[TILE];
            for (int o = 0; o < TILE; o++) values[o] = (float)total[o] * (input_scales[row] * scales[o]);
            if (from)
                for (int o = 0; o < TILE; o++) values[o] += base[o];
            memcpy(out + row * stride + tile * TILE, values, sizeof values);
        }
}

/* All rows times `num_columns` outputs of one slice, whole tiles; scales of weights are TILE per tile. */
static void multiply_bytes(const uint8_t *weight, const float *weight_scales, const struct byte_row *inputs,
                           const float *input_scales, long num_rows, long num_quads, const float *from,
                           long from_stride, float *out, long stride, long num_columns) {
    const long tile_size = num_quads * 4 * TILE;
    for (long first = 0; first < num_columns;) {
        const long left = num_columns - first;
        const int tiles = num_rows == 1 && left >= 4 * TILE ? 4 : left >= 2 * TILE ? 2 : 1;
        for (long row = 0; row < num_rows;) {
            const float *base = from ? from + row * from_stride + first : NULL;
            float *to = out + row * stride + first;
#define PART(rows, tiles)                                                                                            \
    multiply_bytes_tile(weight, tile_size, weight_scales, inputs + row, input_scales + row, num_quads, base,         \
                        from_stride, to, stride, rows, tiles)
            const int rows = num_rows - row >= BYTE_ROWS ? BYTE_ROWS : num_rows - row >= 2 ? 2 : 1;
            if (tiles == 4)
                PART(1, 4);
            else if (tiles == 2 && rows == BYTE_ROWS)
                PART(BYTE_ROWS, 2);
            else if (tiles == 2 && rows == 2)
                PART(2, 2);
            else if (tiles == 2)
                PART(1, 2);
            else if (rows == BYTE_ROWS)
                PART(BYTE_ROWS, 1);
            else if (rows == 2)
                PART(2, 1);
            else
                PART(1, 1);
#undef PART
            row += rows;
        }
        first += tiles * TILE;
        weight += tiles * tile_size;
        weight_scales += tiles * TILE;
    }
}

/* One row of one slice; returns its scale, NaN for a row that is not finite. */
static float quantize_bytes(const float *inputs, long num_columns, struct byte_row *quantized) {
    const float largest = largest_size(inputs, num_columns);
    const long filled = (num_columns + 3) / 4 * 4;
    memset(quantized->values, 0, (size_t)filled);
    quantized->total = 0;
    if (!(largest > 1e-30f)) return largest * 0.0f; /* nothing in it, or NaN */
    const float levels = BYTE_LEVELS / largest, shift = 12582912.0f; /* adding and taking away the shift rounds */
    int32_t total = 0;
    for (long k = 0; k < num_columns; k++) {
        const int32_t value = (int32_t)((inputs[k] * levels + shift) - shift);
        quantized->values[k] = (int8_t)value;
        total += value;
    }
    quantized->total = total;
    return largest / BYTE_LEVELS;
}

#endif
