/* places.h - what the commands for backups share: where these lie, and how that is said. */
#ifndef EMBCTL_PLACES_H
#define EMBCTL_PLACES_H

#include "client/backup/backup.h"

#define S3_OPTIONS                                                                                 \
    {"s3-endpoint", 'e', "URL", 0, "The S3 service (default: $AWS_ENDPOINT_URL, then AWS)", 1},    \
    {                                                                                              \
        "s3-region", 'g', "REGION", 0, "Its region (default: $AWS_REGION, then us-east-1)", 1      \
    }

/* The command's line has no place; an exit code. */
int end_without_place(const char *command, const char *flag);

/* For --help. */
#define PLACES                                                                                     \
    "A place is a directory, or s3://BUCKET/PREFIX. Credentials of S3 come from "                  \
    "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, the service from "            \
    "AWS_ENDPOINT_URL and AWS_REGION, its certificate authorities from AWS_CA_BUNDLE or the "      \
    "system.\n"

#endif
