/* cmocka_all.h - cmocka with the headers it asks for first. */
#ifndef EMBD_TESTS_CMOCKA_ALL_H
#define EMBD_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
