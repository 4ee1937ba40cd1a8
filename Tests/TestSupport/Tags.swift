// SPDX-License-Identifier: Apache-2.0
package import Testing

extension Tag {
    /// The suite needs sockets, processes or the clock: `make test-fast` leaves it out.
    @Tag package static var io: Self
    /// The suite requires the whole machine, because it measures memory or time, or exhausts a resource: `make test`
    /// runs it after all others.
    @Tag package static var exclusive: Self
    /// The suite costs much and finds little on most days: `make nightly` and `make soak` run it, `make test` does not.
    @Tag package static var nightly: Self
}
