/* The character CNN of a word by table look-up.
 *
 * A filter's answer to a window is a sum over the window's positions of a number that depends only on the
 * position and the character there, so all of them are looked up instead of multiplied. A bank is all
 * filters of one width. Its table is cut into blocks of BLOCK filters, each (width, NUM_IDS, BLOCK): the
 * rows of common characters of one block stay in the cache while all words pass over it.
 */
#include "squash.h"

enum { NUM_IDS = 262, PAD_ID = 261, BLOCK = 32, VECTORS = BLOCK / LANES };

/* Characters up to the last that is not padding. */
static long word_length(const int64_t *ids, long num_chars) {
    while (num_chars > 0 && ids[num_chars - 1] == PAD_ID) num_chars--;
    return num_chars;
}

/* Write every word's length; 0 if an id has no row in the tables. */
static int measure_words(const int64_t *char_ids, int64_t *lengths, long num_words, long num_chars) {
    for (long at = 0; at < num_words * num_chars; at++)
        if (char_ids[at] < 0 || char_ids[at] >= NUM_IDS) return 0;
    for (long word = 0; word < num_words; word++)
        lengths[word] = word_length(char_ids + word * num_chars, num_chars);
    return 1;
}

static long total(const int64_t *counts, long num_counts) {
    long sum = 0;
    for (long at = 0; at < num_counts; at++) sum += counts[at];
    return sum;
}

INLINE void answer_window(const float *table, long width, const int64_t *ids, vec *answer) {
    const float *row = table + ids[0] * BLOCK;
    UNROLL for (int v = 0; v < VECTORS; v++) answer[v] = load(row + v * LANES);
    for (long position = 1; position < width; position++) {
        row = table + (position * NUM_IDS + ids[position]) * BLOCK;
        UNROLL for (int v = 0; v < VECTORS; v++) answer[v] += load(row + v * LANES);
    }
}

/* Every filter's strongest answer among one or more windows; NaN if one of them is, which the sum remembers. Unless
 * winners is NULL, it gets the window of that answer, the first of equals. */
INLINE void strongest(const float *table, long width, const int64_t *ids, long num_windows, float *best,
                      int32_t *winners) {
    vec top[VECTORS], sum[VECTORS], answer[VECTORS];
    ivec winner[VECTORS];
    answer_window(table, width, ids, top);
    UNROLL for (int v = 0; v < VECTORS; v++) sum[v] = top[v], winner[v] = (ivec){0};
    for (long window = 1; window < num_windows; window++) {
        answer_window(table, width, ids + window, answer);
        UNROLL for (int v = 0; v < VECTORS; v++) {
            if (winners) {
                const ivec won = answer[v] > top[v];
                winner[v] = (winner[v] & ~won) | (((ivec){0} + (int32_t)window) & won);
            }
            top[v] = larger(top[v], answer[v]);
            sum[v] += answer[v];
        }
    }
    UNROLL for (int v = 0; v < VECTORS; v++) store(best + v * LANES, choose(sum[v] != sum[v], sum[v], top[v]));
    if (winners) memcpy(winners, winner, sizeof winner);
}

INLINE void finish(const float *best, const float *bias, float *pooled, int use_tanh, long count) {
    const vec answer = load(best) + load_part(bias, count);
    store_part(pooled, use_tanh ? hyperbolic_tangent(answer) : larger((vec){0}, answer), count);
}

/* One block of filters for all words. */
INLINE void pool_block(const float *table, const float *bias, long width, long count, const int64_t *char_ids,
                       const int64_t *lengths, long num_words, long num_chars, float *pooled, int16_t *winners,
                       long num_filters, int use_tanh) {
    const long num_fitting = num_chars - width + 1;
    for (long word = 0; word < num_words; word++) {
        /* All windows that lie wholly in the padding are alike: one of them is enough. */
        const long num_windows = lengths[word] + 1 < num_fitting ? lengths[word] + 1 : num_fitting;
        float best[BLOCK];
        int32_t where[BLOCK];
        strongest(table, width, char_ids + word * num_chars, num_windows, best, winners ? where : NULL);
        if (winners)
            for (long f = 0; f < count; f++) winners[word * num_filters + f] = (int16_t)where[f];
        float *to = pooled + word * num_filters;
        long f = 0;
        for (; f + LANES <= count; f += LANES) finish(best + f, bias + f, to + f, use_tanh, LANES);
        if (f < count) finish(best + f, bias + f, to + f, use_tanh, count - f);
    }
}

/* One block of filters for all words: add each filter's gradient to what it looked up in its strongest window. */
static void spread_block(long width, long count, const int64_t *char_ids, const int16_t *winners, long num_words,
                         long num_chars, const float *grad, long num_filters, float *table_grad) {
    for (long word = 0; word < num_words; word++) {
        const int64_t *ids = char_ids + word * num_chars;
        for (long f = 0; f < count; f++) {
            const float share = grad[word * num_filters + f];
            if (share == 0) continue; /* half of all answers are below zero, where relu stops the gradient */
            const int64_t *window = ids + winners[word * num_filters + f];
            for (long position = 0; position < width; position++)
                table_grad[(position * NUM_IDS + window[position]) * BLOCK + f] += share;
        }
    }
}

/* From the gradient of the answers before bias and activation to that of the tables, which is added to table_grad.
 * char_ids and winners are those of the way forward, which has looked at them. */
EXPORT void KERNEL(char_pool_backward)(const int64_t *char_ids, const int16_t *winners, long num_words, long num_chars,
                                       const int64_t *widths, const int64_t *counts, long num_banks, const float *grad,
                                       float *table_grad) {
    const long num_filters = total(counts, num_banks);
    for (long bank = 0; bank < num_banks; bank++) {
        for (long first = 0; first < counts[bank]; first += BLOCK) {
            const long left = counts[bank] - first, count = left < BLOCK ? left : BLOCK;
            spread_block(widths[bank], count, char_ids, winners, num_words, num_chars, grad, num_filters, table_grad);
            table_grad += widths[bank] * NUM_IDS * BLOCK;
            grad += count;
            winners += count;
        }
    }
}

/* lengths has room for one number per word. winners receives the window of each filter's maximum, or is NULL.
 * Returns 1, with nothing pooled, if an id has no row in the tables. */
EXPORT int KERNEL(char_pool)(const int64_t *char_ids, int64_t *lengths, long num_words, long num_chars,
                             const float *table, const float *bias, const int64_t *widths, const int64_t *counts,
                             long num_banks, float *pooled, int16_t *winners, int use_tanh) {
    if (!measure_words(char_ids, lengths, num_words, num_chars)) return 1;
    const long num_filters = total(counts, num_banks);
    for (long bank = 0; bank < num_banks; bank++) {
        for (long first = 0; first < counts[bank]; first += BLOCK) {
            const long left = counts[bank] - first, count = left < BLOCK ? left : BLOCK;
            if (winners)
                pool_block(table, bias, widths[bank], count, char_ids, lengths, num_words, num_chars, pooled, winners,
                           num_filters, use_tanh);
            else
                pool_block(table, bias, widths[bank], count, char_ids, lengths, num_words, num_chars, pooled, NULL,
                           num_filters, use_tanh);
            table += widths[bank] * NUM_IDS * BLOCK;
            bias += count;
            pooled += count;
            if (winners) winners += count;
        }
    }
    return 0;
}
