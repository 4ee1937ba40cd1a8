// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink
import HHSocketSystem
import NIOCore

extension SocketError {
    /// The error of a listener that could not be bound to `endpoint`, by the error of NIO's.
    package static func cannotListen(on endpoint: Endpoint, _ error: any Error) -> SocketError {
        func failed(_ reason: String, _ code: Code = .bindFailed) -> SocketError {
            SocketError(code, message: "cannot listen on \(endpoint): \(reason)", underlying: error, endpoint: endpoint)
        }
        switch error {
        case let error as IOError:
            let isPath = endpoint.unixPath != nil
            let advice =
                switch error.errnoCode {
                case EADDRINUSE:
                    "address already in use; another server listens there, choose another \(isPath ? "path" : "port")"
                case EACCES: "permission denied\(isPath ? "" : "; ports below 1024 belong to the superuser")"
                case EADDRNOTAVAIL: "this machine has no such address"
                case ENOENT where isPath: "its folder does not exist"
                default: String(cString: strerror(error.errnoCode))
                }
            return failed(advice)
        case is SocketAddressError.UnknownHost: return failed("the host has no address", .hostNotFound)
        default: return failed("\(error)")
        }
    }
}
