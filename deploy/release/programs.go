package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The programs that are packed one by one, by their names.
const (
	worker     = "worker"
	bridge     = "k8sbridge"
	millwright = "millwright"
)

// file is a file of an archive: text, or the content of a file.
type file struct {
	name string // path in the archive; with a slash at its end: a folder
	mode int64
	text []byte
	from string // path of the content; empty: text
}

// environment returns environment variables of the go command. Without cgo the programs need no C library. The others
// override settings of this machine that would change the programs.
func (r *release) environment(more ...string) []string {
	return append([]string{"CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"}, more...)
}

// folderOf is where the programs of an image are.
func (r *release) folderOf(i image, p platform) string {
	return filepath.Join(r.bin, p.system+"_"+p.architecture, i.name)
}

// buildPrograms builds the programs of all images for linux, and millwright for all platforms.
func (r *release) buildPrograms(ctx context.Context) error {
	for _, p := range r.platforms {
		for _, i := range images() {
			packages := i.packages
			if p.system != "linux" {
				packages = slices.DeleteFunc(slices.Clone(packages), func(of string) bool { return of != "./starter/"+millwright })
			}
			if len(packages) == 0 {
				continue
			}
			output := r.folderOf(i, p) + "/"
			if i.program != "" {
				output += i.program
			}
			arguments := append([]string{"build", "-buildvcs=true", "-ldflags=-s -w", "-o", output}, packages...)
			environment := r.environment("GOOS="+p.system, "GOARCH="+p.architecture)
			if _, err := command(ctx, filepath.Join(r.tree, i.module), environment, "go", arguments...); err != nil {
				return err
			}
		}
	}
	return nil
}

// built calls do for each program that was built, with the name of its files.
func (r *release) built(do func(i image, program, path, name string) error) error {
	for _, p := range r.platforms {
		for _, i := range images() {
			entries, err := os.ReadDir(r.folderOf(i, p))
			if err != nil && p.system == "linux" {
				return fmt.Errorf("find the programs: %w", err)
			}
			for _, e := range entries {
				of := e.Name()
				if i.program != "" {
					of = i.name // each image of a provider has a program of the same name
				}
				name := strings.Join([]string{of, r.version, p.system, p.architecture}, "_")
				if err := do(i, e.Name(), filepath.Join(r.folderOf(i, p), e.Name()), name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// license are the files that go with everything that is packed.
func (r *release) license() []file {
	var files []file
	for _, name := range []string{"LICENSE", "NOTICE"} {
		files = append(files, file{name: name, mode: 0o644, from: filepath.Join(r.tree, name)})
	}
	return files
}

// packPrograms packs worker, k8sbridge and millwright.
func (r *release) packPrograms(context.Context) error {
	return r.built(func(_ image, program, path, name string) error {
		if !slices.Contains([]string{worker, bridge, millwright}, program) {
			return nil
		}
		return r.packed(name+".tar.gz", append([]file{{name: program, mode: 0o755, from: path}}, r.license()...))
	})
}

// listModules writes for each program which modules are in it, as CycloneDX' tool for Go reads them from the program.
// In a program of another module the tool names the root module by its folder: listModules writes the path and version
// of the root module instead.
func (r *release) listModules(ctx context.Context) error {
	root, err := command(ctx, r.tree, r.environment(), "go", "list", "-m")
	if err != nil {
		return err
	}
	named := strings.NewReplacer(
		`"name": "../..",`+"\n"+`      "version": "(devel)"`, `"name": "`+root+`",`+"\n"+`      "version": "`+r.version+`"`,
		"pkg:golang/../..@(devel)", "pkg:golang/"+root+"@"+r.version,
	)
	return r.built(func(_ image, program, path, name string) error {
		if program == "probe" {
			return nil // it has no modules but the standard library
		}
		list, err := command(
			ctx,
			filepath.Join(r.tree, "deploy", "release"),
			r.environment(),
			"go",
			"tool",
			"cyclonedx-gomod",
			"bin",
			"-json",
			"-std",
			"-noserial",
			"-notimestamp",
			"-short-purls",
			"-version="+r.version,
			path,
		)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(r.made, name+".cdx.json"), []byte(named.Replace(list)+"\n"), 0o644)
	})
}

// packChart packs the chart with the version of this release.
func (r *release) packChart(ctx context.Context) error {
	to := filepath.Join(r.bin, "chart")
	_, err := command(ctx, filepath.Join(r.tree, "deploy", "render"), nil, "go", "run", ".", "chart", r.version, to)
	if err != nil {
		return err
	}
	var files []file
	for _, f := range r.license() {
		f.name = "millwright/" + f.name
		files = append(files, f)
	}
	err = fs.WalkDir(os.DirFS(to), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, file{name: name, mode: 0o644, from: filepath.Join(to, name)})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	return r.packed("millwright-"+strings.TrimPrefix(r.version, "v")+".tgz", files)
}

// finish writes the notes and the checksums.
func (r *release) finish(context.Context) error {
	notes := "# Millwright " + r.version + "\n\n" + r.notes + "\n"
	if err := os.WriteFile(filepath.Join(r.made, "release-notes.md"), []byte(notes), 0o644); err != nil {
		return fmt.Errorf("write the notes: %w", err)
	}
	entries, err := os.ReadDir(r.made)
	if err != nil {
		return fmt.Errorf("read the release: %w", err)
	}
	var sums strings.Builder
	for _, e := range entries {
		content, err := os.Open(filepath.Join(r.made, e.Name()))
		if err != nil {
			return fmt.Errorf("read the release: %w", err)
		}
		sum := sha256.New()
		_, err = io.Copy(sum, content)
		_ = content.Close()
		if err != nil {
			return fmt.Errorf("read the release: %w", err)
		}
		_, _ = fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), e.Name())
	}
	return os.WriteFile(filepath.Join(r.made, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// packed writes a compressed archive into the release.
func (r *release) packed(name string, files []file) (err error) {
	return create(filepath.Join(r.made, name), func(to io.Writer) error {
		compressed, err := gzip.NewWriterLevel(to, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := r.archive(compressed, files); err != nil {
			return err
		}
		return compressed.Close()
	})
}

// archive writes files as tar. All belong to root and have the time of the commit.
func (r *release) archive(to io.Writer, files []file) error {
	out := tar.NewWriter(to)
	for _, f := range files {
		text := f.text
		if f.from != "" {
			var err error
			if text, err = os.ReadFile(f.from); err != nil {
				return fmt.Errorf("read what is packed: %w", err)
			}
		}
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(text)), ModTime: r.when, Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
		if _, err := out.Write(text); err != nil {
			return fmt.Errorf("pack %s: %w", f.name, err)
		}
	}
	return out.Close()
}

// create writes a file.
func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Close()
}
