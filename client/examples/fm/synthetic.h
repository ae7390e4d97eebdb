/* synthetic.h - a made-up package archive, for machines on which apt has left no index. */
#ifndef FM_SYNTHETIC_H
#define FM_SYNTHETIC_H

#include "client/examples/fm/packages.h"

/* Adds packages with sections, maintainers and dependencies that follow a structure the model
 * can learn. The same list every time. False: out of memory. */
bool synthetic_packages(package_list *list);

#endif
