package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image describes one container image of a release. The image has the same content as an image that is built from
// deploy/image/Dockerfile or Dockerfile.provider.
type image struct {
	name         string
	moduleFolder string   // folder of the Go module; empty: the root module
	packages     []string // Go packages to build; their programs are at the root of the image
	programName  string   // file name of the only program; empty: each program has the name of its package
}

func releaseImages() []image {
	return []image{
		{
			name: "millwright",
			packages: []string{
				"./" + workerProgram,
				"./" + bridgeProgram,
				"./starter/" + millwrightProgram,
				"./deploy/image/probe",
			},
		},
		{
			name:         "millwright-provider-incus",
			moduleFolder: "provider/incus",
			packages:     []string{"./worker"},
			programName:  "provider",
		},
		{
			name:         "millwright-provider-libvirt",
			moduleFolder: "examples/provider-libvirt",
			packages:     []string{"./worker"},
			programName:  "provider",
		},
	}
}

// imageUser is the user and group of the image's processes, as in the Dockerfiles.
const imageUser = "65532:65532"

// writeImages writes each image as an OCI archive: one index with one image per architecture of linux.
func (r *release) writeImages(context.Context) error {
	for _, i := range releaseImages() {
		index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
		for _, p := range r.platforms {
			if p.operatingSystem != "linux" {
				continue
			}
			one, err := r.buildImage(i, p)
			if err != nil {
				return fmt.Errorf("image %s for %s: %w", i.name, p, err)
			}
			index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one, Descriptor: v1.Descriptor{
				Platform: &v1.Platform{OS: p.operatingSystem, Architecture: p.architecture},
			}})
		}
		if err := r.writeArchive(i, index); err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
	}
	return nil
}

// buildImage builds one image for one platform.
func (r *release) buildImage(i image, p platform) (v1.Image, error) {
	entries, err := os.ReadDir(r.programFolder(i, p))
	if err != nil {
		return nil, err
	}
	var programs []archivedFile
	for _, e := range entries {
		programs = append(
			programs,
			archivedFile{name: e.Name(), mode: 0o755, sourcePath: filepath.Join(r.programFolder(i, p), e.Name())},
		)
	}
	certificates := []archivedFile{
		{name: "etc/", mode: 0o755},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: mozillaCertificates()},
	}
	one := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for n, files := range [][]archivedFile{certificates, programs} {
		path := filepath.Join(r.programsFolder, fmt.Sprintf("%s_%s_%d.tar", i.name, p.architecture, n))
		if err := createFile(path, func(to io.Writer) error { return r.writeTar(to, files) }); err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		if one, err = mutate.Append(one, mutate.Addendum{
			Layer:     layer,
			MediaType: types.OCILayer,
			History:   v1.History{Created: v1.Time{Time: r.commitTime}, CreatedBy: "make release"},
		}); err != nil {
			return nil, err
		}
	}
	config, err := one.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.operatingSystem, p.architecture, v1.Time{Time: r.commitTime}
	config.Config = v1.Config{
		User:       imageUser,
		WorkingDir: "/",
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    i.name,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(one, config)
}

// mozillaCertificates returns the root certificates that Mozilla trusts, as PEM. The Dockerfiles copy a file with the
// same certificates.
func mozillaCertificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a buffer never fails
	}
	return text.Bytes()
}

// writeArchive writes an image index as a tar archive in the OCI layout.
func (r *release) writeArchive(i image, index v1.ImageIndex) error {
	folder := filepath.Join(r.programsFolder, i.name+".oci")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          i.name + ":" + r.version,
	})); err != nil {
		return err
	}
	var files []archivedFile
	err = filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || name == "." {
			return err
		}
		if entry.IsDir() {
			files = append(files, archivedFile{name: name + "/", mode: 0o755})
		} else {
			files = append(files, archivedFile{name: name, mode: 0o644, sourcePath: path})
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b archivedFile) int { return strings.Compare(a.name, b.name) })
	return createFile(filepath.Join(r.releaseFolder, i.name+"_"+r.version+".oci.tar"), func(to io.Writer) error {
		return r.writeTar(to, files)
	})
}
