// Package operator submits operator requests, publishes policies, plans repairs, and reads the
// group and its history. The commands and the HTTP API share it. What a request changes is planned by package request.
package operator
