package metricstore

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is one line of /proc/self/mountinfo.
type mount struct {
	point, fsType, source string
	readOnly              bool
}

// parseMounts reads mountinfo text; lines it does not understand are left out.
//
//	36 25 0:32 / /shared rw,relatime shared:1 - nfs4 fs1.example:/export rw,vers=4.2,hard
func parseMounts(text string) []mount {
	var out []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(line, " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 6 || len(r) < 2 {
			continue
		}
		out = append(out, mount{
			point:  unescapeMount(l[4]),
			fsType: r[0], source: unescapeMount(r[1]),
			readOnly: strings.HasPrefix(l[5]+",", "ro,"),
		})
	}
	return out
}

// unescapeMount replaces the octal escapes that the kernel writes for blanks in paths.
func unescapeMount(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// mountOf finds the mount that holds path: the one with the longest mount point above it, and of equal
// ones the last, which hides the others.
func mountOf(mounts []mount, path string) (mount, bool) {
	best, found := mount{}, false
	for _, m := range mounts {
		if within(path, m.point) && (!found || len(m.point) >= len(best.point)) {
			best, found = m, true
		}
	}
	return best, found
}

func within(path, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return path == dir || strings.HasPrefix(path, dir+"/") || dir == ""
}

// fsKind says what is wrong with keeping a database on a file system of a type.
func fsKind(fsType string) (what, why string) {
	switch {
	case fsType == "nfs" || strings.HasPrefix(fsType, "nfs"):
		return "network storage (NFS)", "locks and memory maps are not reliable there, and a lost connection damages blocks"
	case fsType == "lustre", fsType == "gpfs", fsType == "beegfs", fsType == "ceph", fsType == "cifs", fsType == "smb3",
		fsType == "smbfs", fsType == "glusterfs", fsType == "afs", fsType == "9p", fsType == "pvfs2", fsType == "wekafs",
		strings.HasPrefix(fsType, "fuse") && fsType != "fusectl":
		return "shared storage (" + fsType + ")", "locks and memory maps are not reliable there, and small writes are slow"
	case fsType == "tmpfs", fsType == "ramfs":
		return "memory (" + fsType + ")", "it is lost when the machine or the job ends, and it counts against the job's memory"
	case fsType == "overlay", fsType == "aufs":
		return "a container's own layer (" + fsType + ")", "it is lost when the container goes"
	}
	return "", ""
}

// FilesystemNotice says whether keeping the database in dir is unwise, and what to do instead. mountinfo
// is the text of /proc/self/mountinfo; getenv looks up TMPDIR and the like. It reads and writes nothing.
func FilesystemNotice(dir, mountinfo string, getenv func(string) string) (Notice, bool) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	mounts := parseMounts(mountinfo)
	m, ok := mountOf(mounts, dir)
	where := dir
	if ok {
		where = fmt.Sprintf("%s (%s, %s)", m.point, m.fsType, m.source)
		if what, why := fsKind(m.fsType); what != "" {
			return Notice{
				Code:    "filesystem",
				Message: fmt.Sprintf("The data directory %s lies on %s, mounted at %s: %s.", dir, what, m.point, why),
				Where:   where,
				Hint:    snapshotHint(mounts, m, dir),
			}, true
		}
	}
	for _, v := range []string{"SLURM_TMPDIR", "PBS_JOBFS", "TMPDIR"} {
		if d := getenv(v); d != "" && within(dir, filepath.Clean(d)) {
			return scratchNotice(dir, "$"+v+" ("+d+")", where), true
		}
	}
	for _, d := range []string{"/scratch", "/local_scratch", "/localscratch", "/lscratch", "/tmp", "/var/tmp"} {
		if within(dir, d) {
			return scratchNotice(dir, d, where), true
		}
	}
	return Notice{}, false
}

func scratchNotice(dir, scratch, where string) Notice {
	return Notice{
		Code:    "filesystem",
		Message: fmt.Sprintf("The data directory %s lies in %s, which is often emptied when a job or the machine ends.", dir, scratch),
		Where:   where,
		Hint:    "Add --storage.snapshot-to DIR with a directory that stays: closed blocks and the write-ahead log are copied there every few minutes, and `rollscope replay DIR` opens the copy.",
	}
}

// snapshotHint names a local file system if the table has one.
func snapshotHint(mounts []mount, on mount, dir string) string {
	local := "a local disk"
	for _, m := range mounts {
		switch m.fsType {
		case "ext4", "ext3", "xfs", "btrfs", "zfs":
			if !m.readOnly && m.point != "/" && !strings.HasPrefix(m.point, "/boot") && !strings.HasPrefix(m.point, "/etc/") {
				local = fmt.Sprintf("a local disk (for example below %s)", m.point)
			}
		}
	}
	keep := dir
	if what, _ := fsKind(on.fsType); strings.HasPrefix(what, "memory") || strings.HasPrefix(what, "a container") {
		keep = "DIR"
		return fmt.Sprintf("Keep --storage.tsdb.path on %s, or add --storage.snapshot-to %s with a directory that stays: closed blocks and the write-ahead log are copied there every few minutes, and `rollscope replay %s` opens the copy.", local, keep, keep)
	}
	return fmt.Sprintf("Keep --storage.tsdb.path on %s and add --storage.snapshot-to %s: closed blocks and the write-ahead log are copied there every few minutes, and `rollscope replay %s` opens the copy.", local, keep, keep)
}
