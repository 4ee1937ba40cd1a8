// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The endpoint of a listener, which all of its connections share: an `Endpoint` is too large for each to have a copy.
final class SharedEndpoint: Sendable {
    let value: Endpoint

    init(_ value: Endpoint) {
        self.value = value
    }
}
