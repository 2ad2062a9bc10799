package measure

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Disk returns the name of the file system under dir. It refuses one that lies in memory: an fsync there costs nothing.
func Disk(dir string) (string, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return "", fmt.Errorf("cannot look at the file system of %s: %w", dir, err)
	}
	switch kind := int64(s.Type); kind {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		return "", fmt.Errorf("%s lies in memory: durable figures need a disk", dir)
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", nil
	case unix.XFS_SUPER_MAGIC:
		return "xfs", nil
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs", nil
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs", nil
	default:
		return fmt.Sprintf("%#x", kind), nil
	}
}
