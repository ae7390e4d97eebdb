/* test_judge.c - what the answers of other servers say about a data directory. */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "server/identity/judge.h"

#define OURS   "0123456789abcdef0123456789abcdef"
#define THEIRS "fedcba9876543210fedcba9876543210"

struct given {
    const char *cluster;
    uint64_t known_epoch, known_start, tables;
    bool is_silent;
};

struct judged_case {
    const char *name;
    const char *cluster;
    uint64_t epoch, start;
    bool has_journal;
    struct given others[3];
    enum judgement judgement;
    const char *becomes;
    uint64_t greatest;
    bool is_heard;
};

#define SILENT                                                                                     \
    {                                                                                              \
        .is_silent = true                                                                          \
    }
#define MEMBER(id)                                                                                 \
    {                                                                                              \
        .cluster = (id)                                                                            \
    }
#define KNOWS(id, epoch, start, n_tables)                                                          \
    {                                                                                              \
        .cluster = (id), .known_epoch = (epoch), .known_start = (start), .tables = (n_tables)      \
    }

static const struct judged_case cases[] = {
    {"nobody answers", OURS, 5, 9, true, {SILENT, SILENT, SILENT}, JUDGED_OWN, OURS, 0, false},
    {"a new cluster: nobody has an id",
     "",
     0,
     0,
     false,
     {MEMBER(""), MEMBER(""), MEMBER("")},
     JUDGED_OWN,
     "",
     0,
     false},
    {"a new server takes the id of the others",
     "",
     0,
     0,
     false,
     {KNOWS(OURS, 0, 0, 3), MEMBER(OURS), MEMBER("")},
     JUDGED_OWN,
     OURS,
     0,
     true},
    {"an earlier version's directory takes it too",
     "",
     0,
     0,
     true,
     {KNOWS(OURS, 0, 0, 3), MEMBER(OURS), MEMBER("")},
     JUDGED_OWN,
     OURS,
     0,
     true},
    {"empty, and others know it and have tables",
     "",
     0,
     0,
     false,
     {KNOWS(OURS, 4, 9, 0), KNOWS(OURS, 0, 0, 1), MEMBER("")},
     JUDGED_EMPTY,
     OURS,
     4,
     true},
    {"empty, and nobody has tables",
     "",
     0,
     0,
     false,
     {KNOWS(OURS, 4, 9, 0), MEMBER(OURS), MEMBER("")},
     JUDGED_OWN,
     OURS,
     4,
     true},
    {"empty, and only those of another cluster have tables",
     "",
     0,
     0,
     false,
     {KNOWS(OURS, 4, 9, 0), MEMBER(OURS), KNOWS(THEIRS, 0, 0, 7)},
     JUDGED_OWN,
     OURS,
     4,
     true},
    {"without its identity, with journals, and others know it",
     "",
     0,
     0,
     true,
     {KNOWS(OURS, 4, 9, 0), MEMBER(""), MEMBER("")},
     JUDGED_OLDER,
     OURS,
     4,
     true},
    {"the right one",
     OURS,
     5,
     9,
     true,
     {KNOWS(OURS, 5, 9, 1), KNOWS(OURS, 4, 8, 1), MEMBER("")},
     JUDGED_OWN,
     OURS,
     5,
     true},
    {"one that started since",
     OURS,
     6,
     10,
     true,
     {KNOWS(OURS, 5, 9, 1), KNOWS(OURS, 4, 8, 1), MEMBER("")},
     JUDGED_OWN,
     OURS,
     5,
     true},
    {"an older one, as one of two knows",
     OURS,
     5,
     9,
     true,
     {KNOWS(OURS, 4, 8, 1), KNOWS(OURS, 6, 7, 1), MEMBER("")},
     JUDGED_OLDER,
     OURS,
     6,
     true},
    {"another start of the same epoch",
     OURS,
     5,
     9,
     true,
     {KNOWS(OURS, 5, 7, 1), MEMBER(""), MEMBER("")},
     JUDGED_OLDER,
     OURS,
     5,
     true},
    {"another cluster's epochs say nothing",
     OURS,
     5,
     9,
     true,
     {KNOWS(OURS, 5, 9, 1), KNOWS(THEIRS, 8, 7, 1), MEMBER("")},
     JUDGED_OWN,
     OURS,
     5,
     true},
    {"one of them is foreign",
     OURS,
     5,
     9,
     true,
     {MEMBER(OURS), MEMBER(THEIRS), SILENT},
     JUDGED_OWN,
     OURS,
     0,
     true},
    {"all others are foreign",
     OURS,
     5,
     9,
     true,
     {MEMBER(THEIRS), MEMBER(THEIRS), SILENT},
     JUDGED_FOREIGN,
     THEIRS,
     0,
     true},
    {"most of the others are foreign",
     OURS,
     5,
     9,
     true,
     {KNOWS(THEIRS, 3, 1, 1), MEMBER(OURS), MEMBER(THEIRS)},
     JUDGED_FOREIGN,
     THEIRS,
     3,
     true},
    {"two that differ",
     OURS,
     5,
     9,
     true,
     {MEMBER(THEIRS), SILENT, SILENT},
     JUDGED_FOREIGN,
     THEIRS,
     0,
     true},
};

static struct identity_answer answer_of(const struct given *given)
{
    struct identity_answer answer = {.is_there = !given->is_silent,
                                     .tables = given->tables,
                                     .known_epoch = given->known_epoch,
                                     .known_start = given->known_start};
    if (given->cluster != NULL)
        snprintf(answer.cluster, sizeof answer.cluster, "%s", given->cluster);
    return answer;
}

static void each_case_is_judged_as_it_should(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct judged_case *c = &cases[i];
        struct identity_own own = {
            .epoch = c->epoch, .start = c->start, .has_journal = c->has_journal};
        struct identity_answer answers[3];
        struct verdict v;
        snprintf(own.cluster, sizeof own.cluster, "%s", c->cluster);
        for (int j = 0; j < 3; j++)
            answers[j] = answer_of(&c->others[j]);
        judge(&own, answers, 3, &v);
        if (v.judgement != c->judgement || strcmp(v.cluster, c->becomes) != 0 ||
            v.greatest_epoch != c->greatest || v.is_heard != c->is_heard)
            fail_msg("%s: judgement %d, cluster '%s', epoch %llu, heard %d", c->name,
                     (int)v.judgement, v.cluster, (unsigned long long)v.greatest_epoch, v.is_heard);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_case_is_judged_as_it_should)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
