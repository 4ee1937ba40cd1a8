// SPDX-License-Identifier: Apache-2.0
package import Testing

extension Tag {
    /// The suite needs sockets, processes or the clock: `make test-fast` leaves it out.
    @Tag package static var io: Self
    /// The suite needs the machine for itself, because it measures memory or time, or exhausts what others need:
    /// `make test` runs it when everything else has run.
    @Tag package static var exclusive: Self
}
