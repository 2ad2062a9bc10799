package images

import (
	_ "embed"

	"soma/internal/binding"
)

var (
	//go:embed soma_image.py
	source []byte
	//go:embed rules.md
	rules string
)

// Binding returns `show_image`.
func Binding() binding.Binding {
	return binding.Binding{Name: "images", Module: "soma_image", Source: source, Rules: rules}
}
