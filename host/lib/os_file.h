/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the disk cache: os.h's neighbour, with the rest of the operating-system calls. */
#ifndef CLATTN_OS_FILE_H
#define CLATTN_OS_FILE_H

#include <stddef.h>

/* Makes the folder (its parent must be there) for this user alone if it is not there, and finds its absolute path, which
 * the caller frees with clattni_path_free.  NULL, and *why a word of static storage, if it can't be used: no folder, not
 * this user's or the administrator's, or others may write to it, since kernels are code that runs. */
char *clattni_folder_open(const char *folder, const char **why);
void clattni_path_free(char *path);

/* Reads a file of the folder: its size, of which at most capacity bytes are in data.  0, and *why NULL, if it is not
 * there; 0, and *why a word of static storage, if it is empty, is not a plain file of this user or the administrator,
 * others may write to it, or it can't be read. */
size_t clattni_file_read(const char *folder, const char *name, void *data, size_t capacity, const char **why);
/* Writes a file that this user alone may read, whole or not at all: readers see the old one or the new one.  It is first
 * written under another name; what a process that ended half way left there stays, and does no harm.  1 on success. */
int clattni_file_write(const char *folder, const char *name, const void *data, size_t bytes);

/* A mark says that a process is at something that may be its end.  It is an empty file under a lock, which the system takes
 * away with the process, in every container that shares the folder: so a mark without a lock was left behind. */
typedef enum clattni_mark_state {
  CLATTNI_MARK_SET,  /* this call made it: *file is for clattni_mark_clear */
  CLATTNI_MARK_NONE, /* somebody else has it now, or it can't be made */
  CLATTNI_MARK_LEFT  /* whoever made it has ended without clearing it; it stays */
} clattni_mark_state;
clattni_mark_state clattni_mark_set(const char *folder, const char *name, int *file);
void clattni_mark_clear(const char *folder, const char *name, int file);

#endif
