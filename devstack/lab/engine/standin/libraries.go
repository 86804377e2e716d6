package standin

import (
	"debug/elf"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
)

// addPrograms adds programs to the folder at. addPrograms also adds the shared libraries and the ELF loader that the
// programs need, from the folder root. A statically linked program needs no shared library and no loader.
func (a *archiveWriter) addPrograms(at string, root string, sources ...string) error {
	needed := map[string]string{} // source path of each file, by its path in the image
	for _, source := range sources {
		if err := collectNeededLibraries(root, source, needed); err != nil {
			return fmt.Errorf("find the libraries of %s: %w", source, err)
		}
		if err := a.addFile(path.Join(at, filepath.Base(source)), source); err != nil {
			return err
		}
	}
	return a.addFiles(needed)
}

// addFiles adds files of this machine; the key of sources is the path in the image.
func (a *archiveWriter) addFiles(sources map[string]string) error {
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		if err := a.addFile(at, sources[at]); err != nil {
			return err
		}
	}
	return nil
}

// collectNeededLibraries adds the loader and the shared libraries of a program or library to needed. The loader and the
// libraries come from the Debian root folder root.
func collectNeededLibraries(root, source string, needed map[string]string) error {
	file, err := elf.Open(source)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if section := file.Section(".interp"); section != nil {
		text, err := section.Data()
		if err != nil {
			return err
		}
		loader := string(text[:len(text)-1]) // the section ends with a zero byte
		needed[loader] = filepath.Join(root, loader)
	}
	names, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	folder := filepath.Join("/usr/lib", debianMultiarchName())
	for _, name := range names {
		at := path.Join(folder, name)
		if _, found := needed[at]; found {
			continue
		}
		library := filepath.Join(root, at)
		if _, err := os.Stat(library); err != nil {
			return err
		}
		needed[at] = library
		if err := collectNeededLibraries(root, library, needed); err != nil {
			return err
		}
	}
	return nil
}

// debianMultiarchName returns Debian's multiarch name of this machine's architecture, such as x86_64-linux-gnu.
func debianMultiarchName() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu"
}
