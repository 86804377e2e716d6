package standin

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// archiveWriter writes the files of an image as a tar archive. Paths in the image are absolute. Parent folders need not
// be added, because the engine creates them with root as the owner.
type archiveWriter struct{ tar *tar.Writer }

func newArchiveWriter(w io.Writer) *archiveWriter { return &archiveWriter{tar.NewWriter(w)} }

func (a *archiveWriter) close() error { return a.tar.Close() }

func (a *archiveWriter) addFolder(at string, mode int64, owner int) error {
	return a.tar.WriteHeader(
		&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(at, "/") + "/", Mode: mode, Uid: owner, Gid: owner},
	)
}

// addTextFile adds a file with the given text.
func (a *archiveWriter) addTextFile(at string, mode int64, text string) error {
	if err := a.tar.WriteHeader(
		&tar.Header{Name: strings.TrimPrefix(at, "/"), Mode: mode, Size: int64(len(text))},
	); err != nil {
		return err
	}
	_, err := io.WriteString(a.tar, text)
	return err
}

func (a *archiveWriter) addLink(at, target string) error {
	return a.tar.WriteHeader(
		&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(at, "/"), Linkname: target, Mode: 0o777},
	)
}

// addFile adds a copy of a file on this machine. Symbolic links are followed.
func (a *archiveWriter) addFile(at, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	err = a.tar.WriteHeader(
		&tar.Header{
			Name:    strings.TrimPrefix(at, "/"),
			Mode:    int64(info.Mode().Perm()),
			Size:    info.Size(),
			ModTime: info.ModTime(),
		},
	)
	if err != nil {
		return err
	}
	_, err = io.Copy(a.tar, file)
	return err
}

// addScript adds a copy of a script on this machine with mode 0755. The source need not be executable, because Go's
// module cache stores files without the executable bit.
func (a *archiveWriter) addScript(at, source string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return a.addTextFile(at, 0o755, string(text))
}

// addTree adds the files and symbolic links below a folder of this machine. addTree skips each file, link or folder for
// which unwanted returns true; unwanted receives the path relative to the source folder. If unwanted is nil, addTree
// skips nothing.
func (a *archiveWriter) addTree(at, source string, unwanted func(name string) bool) error {
	return filepath.WalkDir(source, func(found string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(source, found)
		if err != nil {
			return err
		}
		switch {
		case unwanted != nil && name != "." && unwanted(name):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(found)
			if err != nil {
				return err
			}
			return a.addLink(path.Join(at, name), target)
		case entry.Type().IsRegular():
			return a.addFile(path.Join(at, name), found)
		}
		return nil
	})
}

// addShell adds busybox, and links to busybox for sh and for the given programs.
func (a *archiveWriter) addShell(root string, programs ...string) error {
	if err := a.addFile("/usr/bin/busybox", filepath.Join(root, "usr", "bin", "busybox")); err != nil {
		return err
	}
	if err := a.addLink("/bin", "usr/bin"); err != nil {
		return err
	}
	for _, program := range append([]string{"sh"}, programs...) {
		if err := a.addLink("/usr/bin/"+program, "busybox"); err != nil {
			return err
		}
	}
	return a.addFolder("/tmp", 0o1777, 0)
}
