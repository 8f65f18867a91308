// Package operator does what operators ask of a group: it submits their requests, publishes policies, plans repairs, and reads
// the group and its history. The commands and the HTTP API use it. Package request plans the requests themselves.
package operator
