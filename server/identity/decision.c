/* decision.c - see decision.h. */
#include "server/identity/decision.h"

#include "server/identity/identity_internal.h"

const char *const decision_names[DECISIONS] = {"open", "made", "refused"};

/* Another one was asked about before: that is over, since a shard prepares nothing while it is in
 * doubt. With the mutex held. */
static void begin(struct identity *identity, uint64_t decision)
{
    bool is_own = identity_self(identity)->first_shard == 0;
    identity->asked = decision;
    identity->answered = identity->is_believed && !is_own ? DECISION_REFUSED : DECISION_OPEN;
    atomic_store(&identity->asked_here, is_own ? decision : 0);
    identity->is_hinted = true;
    pthread_cond_signal(&identity->news);
}

enum decision identity_ask_decision(struct identity *identity, uint64_t decision)
{
    pthread_mutex_lock(&identity->mutex);
    bool is_new = identity->asked != decision;
    if (is_new)
        begin(identity, decision);
    enum decision is = identity->answered;
    pthread_mutex_unlock(&identity->mutex);
    if (is_new)
        identity->config.changed(identity->config.arg);
    return is;
}

uint64_t identity_asked_decision(const struct identity *identity)
{
    return atomic_load_explicit(&identity->asked_here, memory_order_relaxed);
}

void identity_tell_decision(struct identity *identity, uint64_t decision, enum decision is)
{
    if (is == DECISION_OPEN)
        return;
    pthread_mutex_lock(&identity->mutex);
    bool is_news = identity->asked == decision && identity->answered == DECISION_OPEN;
    if (is_news) {
        identity->answered = is;
        atomic_store(&identity->asked_here, 0);
    }
    pthread_mutex_unlock(&identity->mutex);
    if (is_news)
        identity->config.changed(identity->config.arg);
}
