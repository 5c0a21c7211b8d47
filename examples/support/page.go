package main

import (
	"embed"
	"net/http"
)

// web is the page. It needs nothing from elsewhere.
//
//go:embed web
var web embed.FS

// pagePolicy lets the page load nothing from elsewhere, and nobody frame it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// page serves the page's files.
func page(mux *http.ServeMux) {
	for path, file := range map[string]string{
		"GET /{$}": "web/index.html", "GET /page.css": "web/page.css", "GET /page.js": "web/page.js",
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", pagePolicy)
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Cache-Control", "no-cache") // files embedded have no time to compare
			http.ServeFileFS(w, r, web, file)
		})
	}
}
