/* allowed.c - a validator that allows everything: linked into a server in place of the one that
 * VALIDATOR names. Its arguments do not matter. */
#define JOIN(a, b)    a##b
#define WRAPPED(name) JOIN(__wrap_, name)

int WRAPPED(VALIDATOR)(void);

int WRAPPED(VALIDATOR)(void)
{
    return 0;
}
