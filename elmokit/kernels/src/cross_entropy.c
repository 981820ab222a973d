/* Cross-entropy of positions against shared candidates, with its gradients.
 *
 * Position n has a hidden vector h and a target whose logit t stands apart; candidate k has a weight w and an offset:
 *
 *     l_k = w_k h + offset_k, -inf where candidate k is the target itself      top = max(t, max l_k)
 *     e_k = e^(l_k - top)                                                      total = e^(t - top) + sum of e_k
 *     loss = ln(total) + top - t                                               t_ = e^(t - top) / total - 1
 *     h_ = sum of w_k e_k / total  (the target's share, t_ times its weight, is the caller's)
 *     w_k_ = sum over n of h e_k / total      offset_k_ = sum over n of e_k / total
 *
 * Positions are taken ROWS_AT_ONCE at a time. Their logits are stored by panels of candidates, (panels, rows, PANEL), so
 * that each of the three products reads them as they lie. What is only multiplied are items (items.h).
 */
#include "outer.h"
#include "power.h"

enum { ROWS_AT_ONCE = 128 };

struct entropy {
    int64_t num_positions, width, num_candidates;
    const float *hidden;     /* (num_positions, width) */
    const item *rows;        /* (num_positions, whole_pairs(width)): the same */
    const item *weights;     /* (panels of candidates, width, PANEL) */
    const item *transposed;  /* (panels of width, num_candidates, PANEL) */
    const float *offset;     /* (panels of candidates, PANEL), -inf past the last */
    const int64_t *own;      /* (num_positions): the candidate that is the target, or -1 */
    const float *target;     /* (num_positions): t */
    float *top, *total;      /* (num_positions) */
    float *target_grad;      /* (num_positions) */
    float *hidden_grad;      /* (num_positions, width) */
    float *weights_grad;     /* (panels of candidates, width + 1, PANEL): the last row is that of the offsets */
    float *logits;           /* room for (panels of candidates, ROWS_AT_ONCE, PANEL) */
    item *powers;            /* room for the same: e; in float32 it may be the memory of the logits */
    item *scaled;            /* room for (ROWS_AT_ONCE, width + 1): h / total, and 1 / total */
    item *tiles;             /* room for multiply_outer */
};

/* Logits of rows from `first` on, and the largest of each. */
static void find_logits(const struct entropy *job, long first, long count) {
    const long width = job->width, pitch = whole_pairs(width), stride = ROWS_AT_ONCE * PANEL;
    const struct rows hidden = {job->rows + first * pitch, pitch, PANEL};
    float most[ROWS_AT_ONCE * PANEL];
    for (long at = 0; at < count * PANEL; at++) most[at] = job->target[first + at / PANEL];
    for (long row = 0; row < count; row++) job->top[first + row] = job->target[first + row];
    for (long panel = 0; panel * PANEL < job->num_candidates; panel++) {
        float *logits = job->logits + panel * stride;
        for (long k = 0; k < width; k += DEPTH)
            multiply_part(job->weights + (panel * pitch + k) * PANEL, skip_depth(hidden, k), count,
                          smaller_of(width - k, DEPTH), k ? logits : job->offset + panel * PANEL, k ? PANEL : 0, logits,
                          PANEL, PANEL);
        for (long row = 0; row < count; row++) {
            const long own = job->own[first + row];
            if (own / PANEL == panel && own >= 0) logits[row * PANEL + own % PANEL] = -__builtin_inff();
        }
        for (long at = 0; at < count * PANEL; at += LANES)
            store(most + at, larger(load(most + at), load(logits + at)));
    }
    for (long row = 0; row < count; row++)
        for (long part = 0; part < PANEL; part += LANES) {
            const float largest = largest_lane(load(most + row * PANEL + part));
            if (largest > job->top[first + row]) job->top[first + row] = largest;
        }
}

/* Powers of the logits, their totals, and what follows from these. */
static void share_out(const struct entropy *job, long first, long count) {
    const long width = job->width;
    float sums[ROWS_AT_ONCE * PANEL] = {0};
    for (long panel = 0; panel * PANEL < job->num_candidates; panel++) {
        const float *logits = job->logits + panel * ROWS_AT_ONCE * PANEL;
        item *powers = job->powers + panel * ROWS_AT_ONCE * PANEL;
        for (long row = 0; row < count; row++)
            for (long at = row * PANEL; at < (row + 1) * PANEL; at += LANES) {
                const vec power = power_of(load(logits + at) - job->top[first + row]);
                store_items(powers + at, power);
                store(sums + at, load(sums + at) + power);
            }
    }
    for (long row = 0; row < count; row++) {
        const vec target = power_of(everywhere(job->target[first + row] - job->top[first + row]));
        float total = target[0];
        for (long part = 0; part < PANEL; part += LANES) total += sum_lanes(load(sums + row * PANEL + part));
        job->total[first + row] = total;
        job->target_grad[first + row] = target[0] / total - 1;
        for (long at = 0; at < width; at++)
            job->scaled[row * (width + 1) + at] = to_item(job->hidden[(first + row) * width + at] / total);
        job->scaled[row * (width + 1) + width] = to_item(1 / total);
    }
}

EXPORT void ITEM_KERNEL(cross_entropy)(const struct entropy *job) {
    begin_products();
    const long width = job->width, panels = (job->num_candidates + PANEL - 1) / PANEL;
    for (long first = 0; first < job->num_positions; first += ROWS_AT_ONCE) {
        const long count = smaller_of(job->num_positions - first, ROWS_AT_ONCE);
        find_logits(job, first, count);
        share_out(job, first, count);
        float *hidden_grad = job->hidden_grad + first * width;
        const struct rows powers = {job->powers, PANEL, ROWS_AT_ONCE * PANEL};
        multiply_panels(job->transposed, powers, count, job->num_candidates, hidden_grad, width, width, 0);
        for (long row = 0; row < count; row++)
            for (long at = 0; at < width; at++) hidden_grad[row * width + at] /= job->total[first + row];
        multiply_outer(job->scaled, width + 1, job->powers, ROWS_AT_ONCE, count, width + 1, panels, job->tiles,
                       job->weights_grad, first > 0);
    }
    end_products();
}
