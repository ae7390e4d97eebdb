/* report.c - what came of copying tables to or from a directory, shown as fields. */
#include "client/embctl/listing.h"
#include "client/embctl/report.h"
#include "embd/admin.h"

void report_print(const char *what, const char *place, const embd_dump_report *report,
                  uint64_t elapsed_us, bool has_pause)
{
    static const struct column columns[] = {{"directory", CELL_TEXT},
                                            {"rows", CELL_COUNT},
                                            {"bytes", CELL_BYTES},
                                            {"elapsed_us", CELL_MICROS},
                                            {"pushes_waited_us", CELL_MICROS}};
    struct listing l;
    listing_init(&l, what, columns, has_pause ? 5 : 4);
    listing_row(&l);
    listing_text(&l, 0, place);
    listing_uint(&l, 1, report->rows);
    listing_uint(&l, 2, report->bytes);
    listing_uint(&l, 3, elapsed_us);
    if (has_pause)
        listing_uint(&l, 4, report->pause_us);
    listing_print_fields(&l);
    listing_fini(&l);
}
