"""Shows a folder as a disk that fails, for scripts/chaos. By FUSE: needs python3-fusepy and root.

  /usr/bin/python3 faulty_disk.py FOLDER PLACE SEED FAULT=SHARE...

Of the calls that a fault belongs to, this share meets it: `read`, `write` and `sync` give EIO,
`short` reads give a part of what was asked for, `slow` reads take up to 50 ms, and `stall`ed ones
half a second. SIGUSR1 ends all faults. Runs until PLACE is unmounted. Nothing is cached, so each
call of a program gets here; files cannot be mapped for writing.
"""

import errno
import os
import random
import signal
import sys
import time

import fusepy


class FaultyDisk(fusepy.Operations):
    """Files of a folder; a path begins with /, the folder."""

    def __init__(self, folder, seed, shares):
        self.folder, self.shares, self.random = folder, shares, random.Random(seed)
        signal.signal(signal.SIGUSR1, lambda *_: self.shares.clear())

    def path(self, name):
        return self.folder + name

    def meets(self, fault):
        return self.random.random() < self.shares.get(fault, 0)

    def fail(self, fault):
        if self.meets(fault):
            raise fusepy.FuseOSError(errno.EIO)

    def getattr(self, path, fh=None):
        found = os.fstat(fh) if fh is not None else os.lstat(self.path(path))
        return {name: getattr(found, name) for name in (
            "st_atime", "st_ctime", "st_mtime", "st_gid", "st_uid", "st_mode", "st_nlink",
            "st_size", "st_blocks")}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self.path(path))]

    def open(self, path, flags):
        return os.open(self.path(path), flags)

    def create(self, path, mode, fi=None):
        return os.open(self.path(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def read(self, path, size, offset, fh):
        if self.meets("slow"):
            time.sleep(self.random.uniform(0, 0.05))
        if self.meets("stall"):
            time.sleep(0.5)
        self.fail("read")
        if size > 1 and self.meets("short"):
            size = self.random.randrange(1, size)
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        self.fail("write")
        return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(self.path(path) if fh is None else fh, length)

    def fsync(self, path, datasync, fh):
        self.fail("sync")

    def fsyncdir(self, path, datasync, fh):
        self.fail("sync")

    def release(self, path, fh):
        os.close(fh)

    def unlink(self, path):
        os.unlink(self.path(path))

    def rename(self, old, new):
        os.rename(self.path(old), self.path(new))

    def mkdir(self, path, mode):
        os.mkdir(self.path(path), mode)

    def chmod(self, path, mode):
        os.chmod(self.path(path), mode)

    def statfs(self, path):
        found = os.statvfs(self.folder)
        return {name: getattr(found, name) for name in (
            "f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_frsize", "f_namemax")}


def main():
    folder, place, seed, *faults = sys.argv[1:]
    shares = {name: float(share) for name, share in (fault.split("=") for fault in faults)}
    fusepy.FUSE(FaultyDisk(folder, seed, shares), place, foreground=True, nothreads=True,
                direct_io=True)


if __name__ == "__main__":
    main()
