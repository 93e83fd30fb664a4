/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of files that belong together (a dump): written whole or not at all, and read as what a stranger sent.  Names
 * in it are plain: no folder, no link, nothing hidden. */
#ifndef CLATTN_CLI_FOLDER_H
#define CLATTN_CLI_FOLDER_H

#include <stddef.h>
#include <stdint.h>

enum { CLI_FOLDER_NAME_BYTES = 128, CLI_FOLDER_HASH_TEXT = 17 /* hexadecimal digits and a 0 */ };

typedef struct cli_folder {
  char *path;  /* for messages; NULL: none */
  int handle;  /* of the folder */
  int made;    /* private: 1 if it was not there before */
  char **name; /* private: what was written into it */
  size_t count, capacity;
} cli_folder;

/* A new folder, or one that is empty; others are refused (exit code 2).  `option` is for messages.  A signal that ends the
 * program removes it as cli_folder_remove does, until it is kept or closed; it must stay where it is in memory. */
int cli_folder_make(const char *option, const char *path, cli_folder *out);
/* A new folder in one that was made. */
int cli_folder_make_in(const cli_folder *parent, const char *name, cli_folder *out);
/* One that is there, for reading. */
int cli_folder_open(const char *path, cli_folder *out);
/* An all-zero folder is accepted, here and below. */
void cli_folder_close(cli_folder *folder);
/* Removes what was written, and the folder if it is new: after a failure. */
void cli_folder_remove(cli_folder *folder);

/* From now on signals leave it as it is. */
void cli_folder_keep(const cli_folder *folder);

/* A file that is not there yet.  hash (may be NULL) is set as below. */
int cli_folder_write(cli_folder *folder, const char *name, const void *data, size_t bytes,
                     char hash[CLI_FOLDER_HASH_TEXT]);
/* Puts a file that was written in the place of another one. */
int cli_folder_replace(cli_folder *folder, const char *name, const char *by);
/* 1 if there is a file of this name. */
int cli_folder_has(const cli_folder *folder, const char *name);
/* The whole file with a 0 behind it, malloc'ed; refused (exit code 2) unless it is a regular file of at least `least`
 * and at most `most` bytes. */
int cli_folder_read(const cli_folder *folder, const char *name, uint64_t least, uint64_t most, char **data,
                    size_t *bytes);

/* Letters, digits, '-', '_' and '.', not first; at most 127. */
int cli_folder_plain_name(const char *name);
/* FNV-1a of 64 bits: tells files apart that were changed or swapped by mistake, not by intent. */
void cli_folder_hash(const void *data, size_t bytes, char hash[CLI_FOLDER_HASH_TEXT]);

#endif
