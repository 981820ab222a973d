/* e^logit for every word of a softmax, each row less its largest logit, with the row's sum: one visit to memory. */
#include "power.h"

/* top holds a lower limit of each row's largest logit, and gets that logit; total gets the sum of the row's powers. */
EXPORT void KERNEL(powers)(float *logits, long stride, long num_rows, long num_words, float *top, float *total) {
    const long whole = num_words - num_words % LANES;
    for (long row = 0; row < num_rows; row++, logits += stride) {
        vec most = everywhere(top[row]);
        for (long k = 0; k < whole; k += LANES) most = larger(most, load(logits + k));
        float largest = largest_lane(most);
        for (long k = whole; k < num_words; k++) largest = logits[k] > largest ? logits[k] : largest;
        vec sums = {0};
        for (long k = 0; k < whole; k += LANES) {
            const vec power = power_of(load(logits + k) - largest);
            store(logits + k, power);
            sums += power;
        }
        float sum = sum_lanes(sums);
        if (whole < num_words) {
            const vec power = power_of(load_part(logits + whole, num_words - whole) - largest);
            store_part(logits + whole, power, num_words - whole);
            for (long k = whole; k < num_words; k++) sum += logits[k];
        }
        top[row] = largest;
        total[row] = sum;
    }
}
