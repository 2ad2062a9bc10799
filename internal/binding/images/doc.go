// Package images owns the name `show_image` of the cells: PNG, JPEG and WebP images beside a cell's result, recognised and
// measured by their structure alone (P-064). They travel in the done of their cell; there are no host calls.
//
// It must not know sessions, models or how an image is shown. It imports binding.
package images
