// Program is an ordinary program that runs functions in virtual time. It prints
// what it sees of them; the test that builds it knows what that must be.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/headgate-go/headgate/bench/internal/virtual"
)

func main() {
	fmt.Println("arguments", len(os.Args)-1)
	began := time.Now()
	for _, wait := range []time.Duration{time.Hour, 2 * time.Hour} {
		err := virtual.Run(func() {
			began := time.Now()
			time.Sleep(wait)
			fmt.Println("slept", time.Since(began))
		})
		fmt.Println("error", err)
	}
	fmt.Println("panic caught", virtual.Run(func() { panic("p") }) != nil)

	var both sync.WaitGroup
	slept := make([]time.Duration, 2)
	for i := range slept {
		both.Go(func() {
			_ = virtual.Run(func() {
				began := time.Now()
				time.Sleep(time.Duration(i+1) * time.Minute)
				slept[i] = time.Since(began)
			})
		})
	}
	both.Wait()
	fmt.Println("at once", slept)
	fmt.Println("arguments", len(os.Args)-1, "quick", time.Since(began) < 30*time.Second)
}
