package pictures

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// keptFor is how long files of images stay.
const keptFor = 14 * 24 * time.Hour

// endings are those of file names.
var endings = map[string]string{"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}

// Save writes an image to a file of a folder, which is made, and returns its path; name has no ending. One that is there already
// stays. Files of the folder that are older than two weeks are removed.
func Save(dir, name, media string, content []byte, now time.Time) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot save an image: %w", err)
	}
	sweep(dir, now)
	path := filepath.Join(dir, name+endings[media])
	if _, err := os.Lstat(path); err == nil {
		return path, nil
	}
	f, err := os.CreateTemp(dir, ".new-*") // 0600
	if err != nil {
		return "", fmt.Errorf("cannot save an image: %w", err)
	}
	_, err = f.Write(content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", fmt.Errorf("cannot save an image: %w", err)
	}
	return path, nil
}

// sweep removes what is old; what cannot be removed stays until the next time.
func sweep(dir string, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > keptFor {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
