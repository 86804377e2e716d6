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

// archive writes the files of an image. Paths in the image are absolute. Folders above a file need not be added; they
// are root's.
type archive struct{ tar *tar.Writer }

func newArchive(w io.Writer) *archive { return &archive{tar.NewWriter(w)} }

func (a *archive) close() error { return a.tar.Close() }

// folder adds a folder with a mode and an owner.
func (a *archive) folder(at string, mode int64, owner int) error {
	return a.tar.WriteHeader(
		&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(at, "/") + "/", Mode: mode, Uid: owner, Gid: owner},
	)
}

// text adds a file.
func (a *archive) text(at string, mode int64, text string) error {
	if err := a.tar.WriteHeader(
		&tar.Header{Name: strings.TrimPrefix(at, "/"), Mode: mode, Size: int64(len(text))},
	); err != nil {
		return err
	}
	_, err := io.WriteString(a.tar, text)
	return err
}

// link adds a symbolic link.
func (a *archive) link(at, target string) error {
	return a.tar.WriteHeader(
		&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(at, "/"), Linkname: target, Mode: 0o777},
	)
}

// file adds a file of this machine, following links.
func (a *archive) file(at, source string) error {
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

// script adds a script of this machine, which need not be executable here: files of Go modules never are.
func (a *archive) script(at, source string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	return a.text(at, 0o755, string(text))
}

// tree adds the files and links below a folder of this machine. It leaves out each file, link and whole folder for
// whose path below that folder unwanted returns true; nil leaves out nothing.
func (a *archive) tree(at, source string, unwanted func(name string) bool) error {
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
			return a.link(path.Join(at, name), target)
		case entry.Type().IsRegular():
			return a.file(path.Join(at, name), found)
		}
		return nil
	})
}

// shell adds busybox as the shell and as all of its other programs that the image needs.
func (a *archive) shell(root string, programs ...string) error {
	if err := a.file("/usr/bin/busybox", filepath.Join(root, "usr", "bin", "busybox")); err != nil {
		return err
	}
	if err := a.link("/bin", "usr/bin"); err != nil {
		return err
	}
	for _, program := range append([]string{"sh"}, programs...) {
		if err := a.link("/usr/bin/"+program, "busybox"); err != nil {
			return err
		}
	}
	return a.folder("/tmp", 0o1777, 0)
}
