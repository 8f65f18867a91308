// Package recipes tests docs/recipes and deploy/examples: always that pages and files are complete and valid, and with
// -recipes.real that each recipe works, with real servers and the programs of Debian's packages. The package contains
// only tests.
package recipes
