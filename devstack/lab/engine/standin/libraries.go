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

// addPrograms adds programs at their paths below root, with the shared libraries and the loader that they need from
// there. A program that is linked statically needs none.
func (a *archive) addPrograms(at string, root string, sources ...string) error {
	needed := map[string]string{} // source of each file, by its path in the image
	for _, source := range sources {
		if err := addLibraries(root, source, needed); err != nil {
			return fmt.Errorf("find the libraries of %s: %w", source, err)
		}
		if err := a.addFile(path.Join(at, filepath.Base(source)), source); err != nil {
			return err
		}
	}
	return a.addFiles(needed)
}

// addFiles adds files by their paths in the image.
func (a *archive) addFiles(sources map[string]string) error {
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		if err := a.addFile(at, sources[at]); err != nil {
			return err
		}
	}
	return nil
}

// addLibraries adds to needed what a program or library needs from the root folder of a Debian.
func addLibraries(root, source string, needed map[string]string) error {
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
		loader := string(text[:len(text)-1]) // the text ends with a zero byte
		needed[loader] = filepath.Join(root, loader)
	}
	names, err := file.ImportedLibraries()
	if err != nil {
		return err
	}
	folder := filepath.Join("/usr/lib", debianArchitecture())
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
		if err := addLibraries(root, library, needed); err != nil {
			return err
		}
	}
	return nil
}

// debianArchitecture returns Debian's name of the architecture.
func debianArchitecture() string {
	return map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + "-linux-gnu"
}
