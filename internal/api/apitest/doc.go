// Package apitest owns the check of answers against the description of the API: a test hands it openapi.yaml and what a
// server answered.
//
// It knows neither server nor client, and only tests import it. It may import the YAML and JSON Schema libraries.
package apitest
