package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"soma/internal/cli/pictures"
	"soma/internal/cli/plain"
	"soma/wire"
)

// picture puts one image of a cell before the person: inline is what a terminal that can shows it by, else line says where it is.
type picture func(cell string, image wire.CellImage) (inline, line string)

// pictures returns how images are shown on the output: inside of a terminal that can, else as files.
func (a *app) pictures(ctx context.Context) picture {
	how := pictures.None
	if isTerminal(a.Out) {
		how = pictures.Of(a.env)
	}
	return func(cell string, image wire.CellImage) (inline, line string) {
		what := fmt.Sprintf("image %d", image.N)
		if how == pictures.None && filepath.IsAbs(image.Name) {
			if info, err := os.Stat(image.Name); err == nil && info.Mode().IsRegular() {
				return "", what + ": " + plain.Clean(image.Name)
			}
		}
		path, err := "", error(nil)
		if !wire.ValidID(cell) {
			err = fmt.Errorf("%q is no cell", cell)
		} else {
			inline, path, err = a.fetchPicture(ctx, how, cell, image.N)
		}
		switch {
		case err != nil:
			return "", fmt.Sprintf("%s (%s) cannot be shown: %v", what, plain.Size(image.Size), err)
		case inline != "":
			return inline, ""
		}
		return "", what + ": " + path
	}
}

func (a *app) fetchPicture(ctx context.Context, how pictures.Protocol, cell string, n int) (inline, path string, err error) {
	var content []byte
	var media string
	err = a.keep(ctx, func() (err error) { content, media, err = a.client.CellImage(ctx, cell, n); return err })
	if err != nil {
		return "", "", err
	}
	if text, ok := pictures.Inline(how, media, content); ok {
		return text, "", nil
	}
	path, err = pictures.Save(filepath.Join(a.home.Cache(), "images"), fmt.Sprintf("%s-%d", cell, n), media, content, time.Now())
	return "", path, err
}

// showImages shows the images of a cell, and why others are missing.
func (s *screen) showImages(show picture, cell string, shown wire.Shown) {
	for _, image := range shown.Images {
		inline, line := "", fmt.Sprintf("image %d: %s, %s", image.N, plain.Clean(image.Media), plain.Size(image.Size))
		if show != nil {
			inline, line = show(cell, image)
		}
		if inline != "" {
			s.endLine()
			s.buf.WriteString(outputIndent + inline + "\n")
			s.gap = false
			continue
		}
		s.line(ansiDim, outputIndent, plain.Clean(line))
	}
	for _, text := range shown.ImageErrors {
		s.line(ansiRed, outputIndent, plain.Clean(text))
	}
}
