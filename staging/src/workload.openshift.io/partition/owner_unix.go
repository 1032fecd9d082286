//go:build unix

package partition

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user who owns a file.
func ownerOf(info fs.FileInfo) (uid uint32, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return stat.Uid, true
}
