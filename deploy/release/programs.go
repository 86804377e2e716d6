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

// The names of the programs that are packed as one archive each.
const (
	workerProgram     = "worker"
	bridgeProgram     = "k8sbridge"
	millwrightProgram = "millwright"
)

// archivedFile is a file or folder of an archive. The content of a file is text, or is copied from the file at
// sourcePath.
type archivedFile struct {
	name       string // path in the archive; a slash at the end means a folder
	mode       int64
	content    []byte
	sourcePath string // path of the file to copy; empty: the content is text
}

// goEnvironment returns the environment of the go command. CGO_ENABLED=0 builds programs that need no C library. The
// other variables override local settings that would change the programs.
func (r *release) goEnvironment(more ...string) []string {
	return append([]string{"CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0"}, more...)
}

// programFolder returns the folder of the programs of one image for one platform.
func (r *release) programFolder(i image, p platform) string {
	return filepath.Join(r.programsFolder, p.operatingSystem+"_"+p.architecture, i.name)
}

// buildPrograms builds the programs of all images for linux, and only millwright for the other platforms.
func (r *release) buildPrograms(ctx context.Context) error {
	for _, p := range r.platforms {
		for _, i := range releaseImages() {
			packages := i.packages
			if p.operatingSystem != "linux" {
				packages = slices.DeleteFunc(
					slices.Clone(packages),
					func(of string) bool { return of != "./starter/"+millwrightProgram },
				)
			}
			if len(packages) == 0 {
				continue
			}
			output := r.programFolder(i, p) + "/"
			if i.programName != "" {
				output += i.programName
			}
			arguments := append([]string{"build", "-buildvcs=true", "-ldflags=-s -w", "-o", output}, packages...)
			environment := r.goEnvironment("GOOS="+p.operatingSystem, "GOARCH="+p.architecture)
			if _, err := runProgram(
				ctx,
				filepath.Join(r.cloneFolder, i.moduleFolder),
				environment,
				"go",
				arguments...); err != nil {
				return err
			}
		}
	}
	return nil
}

// forEachProgram calls do for each built program; name is the base name of the program's files in the release.
func (r *release) forEachProgram(do func(i image, program, path, name string) error) error {
	for _, p := range r.platforms {
		for _, i := range releaseImages() {
			entries, err := os.ReadDir(r.programFolder(i, p))
			if err != nil && p.operatingSystem == "linux" {
				return fmt.Errorf("find the programs: %w", err)
			}
			for _, e := range entries {
				of := e.Name()
				if i.programName != "" {
					of = i.name // all provider images use the same program name
				}
				name := strings.Join([]string{of, r.version, p.operatingSystem, p.architecture}, "_")
				if err := do(i, e.Name(), filepath.Join(r.programFolder(i, p), e.Name()), name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// licenseFiles returns the license and the notices, which every archive contains.
func (r *release) licenseFiles() []archivedFile {
	var files []archivedFile
	for _, name := range []string{"LICENSE", "NOTICE"} {
		files = append(files, archivedFile{name: name, mode: 0o644, sourcePath: filepath.Join(r.cloneFolder, name)})
	}
	return files
}

// packPrograms packs worker, k8sbridge and millwright.
func (r *release) packPrograms(context.Context) error {
	return r.forEachProgram(func(_ image, program, path, name string) error {
		if !slices.Contains([]string{workerProgram, bridgeProgram, millwrightProgram}, program) {
			return nil
		}
		return r.writeTarball(
			name+".tar.gz",
			append([]archivedFile{{name: program, mode: 0o755, sourcePath: path}}, r.licenseFiles()...),
		)
	})
}

// writeModuleLists writes one list of modules per program, in the CycloneDX format; cyclonedx-gomod reads the modules
// from the program. In a program of another module, cyclonedx-gomod names the root module "../..". writeModuleLists
// replaces this name with the root module's path and version.
func (r *release) writeModuleLists(ctx context.Context) error {
	root, err := runProgram(ctx, r.cloneFolder, r.goEnvironment(), "go", "list", "-m")
	if err != nil {
		return err
	}
	named := strings.NewReplacer(
		`"name": "../..",`+"\n"+`      "version": "(devel)"`, `"name": "`+root+`",`+"\n"+`      "version": "`+r.version+`"`,
		"pkg:golang/../..@(devel)", "pkg:golang/"+root+"@"+r.version,
	)
	return r.forEachProgram(func(_ image, program, path, name string) error {
		if program == "probe" {
			return nil // probe imports only the standard library
		}
		list, err := runProgram(
			ctx,
			filepath.Join(r.cloneFolder, "deploy", "release"),
			r.goEnvironment(),
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
		return os.WriteFile(filepath.Join(r.releaseFolder, name+".cdx.json"), []byte(named.Replace(list)+"\n"), 0o644)
	})
}

// packChart packs the chart with the version of this release.
func (r *release) packChart(ctx context.Context) error {
	to := filepath.Join(r.programsFolder, "chart")
	_, err := runProgram(
		ctx,
		filepath.Join(r.cloneFolder, "deploy", "render"),
		nil,
		"go",
		"run",
		".",
		"chart",
		r.version,
		to,
	)
	if err != nil {
		return err
	}
	var files []archivedFile
	for _, f := range r.licenseFiles() {
		f.name = "millwright/" + f.name
		files = append(files, f)
	}
	err = fs.WalkDir(os.DirFS(to), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, archivedFile{name: name, mode: 0o644, sourcePath: filepath.Join(to, name)})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	return r.writeTarball("millwright-"+strings.TrimPrefix(r.version, "v")+".tgz", files)
}

// writeNotesAndChecksums writes release-notes.md and SHA256SUMS.
func (r *release) writeNotesAndChecksums(context.Context) error {
	notes := "# Millwright " + r.version + "\n\n" + r.notes + "\n"
	if err := os.WriteFile(filepath.Join(r.releaseFolder, "release-notes.md"), []byte(notes), 0o644); err != nil {
		return fmt.Errorf("write the notes: %w", err)
	}
	entries, err := os.ReadDir(r.releaseFolder)
	if err != nil {
		return fmt.Errorf("read the release: %w", err)
	}
	var sums strings.Builder
	for _, e := range entries {
		content, err := os.Open(filepath.Join(r.releaseFolder, e.Name()))
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
	return os.WriteFile(filepath.Join(r.releaseFolder, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// writeTarball writes a gzip-compressed tar archive into the release's folder.
func (r *release) writeTarball(name string, files []archivedFile) (err error) {
	return createFile(filepath.Join(r.releaseFolder, name), func(to io.Writer) error {
		compressed, err := gzip.NewWriterLevel(to, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := r.writeTar(compressed, files); err != nil {
			return err
		}
		return compressed.Close()
	})
}

// writeTar writes files as a tar archive. All entries belong to root and have the commit's time.
func (r *release) writeTar(to io.Writer, files []archivedFile) error {
	out := tar.NewWriter(to)
	for _, f := range files {
		text := f.content
		if f.sourcePath != "" {
			var err error
			if text, err = os.ReadFile(f.sourcePath); err != nil {
				return fmt.Errorf("read what is packed: %w", err)
			}
		}
		header := &tar.Header{
			Name:     f.name,
			Mode:     f.mode,
			Size:     int64(len(text)),
			ModTime:  r.commitTime,
			Typeflag: tar.TypeReg,
		}
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

// createFile creates the file at path; write writes its content.
func createFile(path string, write func(io.Writer) error) error {
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
