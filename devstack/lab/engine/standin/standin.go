// Package standin makes images that replace official images where no registry is reachable: golang, postgres and
// Temporal's images, under the official names. Each image has the files that Millwright's Dockerfiles and
// docker-compose.yml use. The Go toolchain and Temporal's programs are the official programs. PostgreSQL comes from
// Debian.
package standin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"millwright/devstack/lab/engine"
)

// imageRecipe describes an image: its name, its settings and its files.
type imageRecipe struct {
	name         string
	instructions []string // Dockerfile instructions that add no file, such as ENV and USER
	addFiles     func(*archiveWriter) error
}

func (i imageRecipe) importImage(ctx context.Context, e *engine.Engine) error {
	reader, writer := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		a := newArchiveWriter(writer)
		err := i.addFiles(a)
		if err == nil {
			err = a.close()
		}
		writer.CloseWithError(err) // a nil error means the end of the file
		filled <- err
	}()
	arguments := []string{"import"}
	for _, change := range i.instructions {
		arguments = append(arguments, "--change", change)
	}
	_, err := e.RunDocker(ctx, reader, append(arguments, "-", i.name)...)
	_ = reader.CloseWithError(err) // docker may end before it has read the whole archive
	if err = errors.Join(err, <-filled); err != nil {
		return fmt.Errorf("make image %s: %w", i.name, err)
	}
	return nil
}

func importImages(ctx context.Context, e *engine.Engine, images ...imageRecipe) error {
	for _, i := range images {
		if err := i.importImage(ctx, e); err != nil {
			return err
		}
	}
	return nil
}
