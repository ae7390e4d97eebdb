/* auc.h - the area under the ROC curve: how often a positive sample scores above a negative one. */
#ifndef FM_AUC_H
#define FM_AUC_H

#include <stddef.h>

typedef struct scored {
    float score;
    float label; /* 1 or 0 */
} scored;

/* Sorts `samples` and returns the area; equal scores count half. 0.5 where one of the classes is
 * empty. */
double auc(scored *samples, size_t n);

#endif
