// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketTransferValues

/// An error that ends a transfer, as reported to the client, the connection and the log.
struct TransferEnding {
    /// An error that the application threw when it was asked.
    struct Refusal: Error {
        var error: any Error
    }

    /// The error that is sent before the end; nil if the status says everything.
    let reported: TransferError?
    /// The error that the handler throws, which decides on the status.
    let thrown: any Error
    /// The text for the log; nil if the client is responsible.
    let logged: String?

    init(_ error: any Error) {
        switch error {
        case let error as TransferError:
            let isOperators = [.storeFailed, .noRoom, .readOnly].contains(error.code)
            self.init(
                reported: error,
                thrown: StatusError(Self.status(error.code)),
                logged: isOperators ? "\(error)" : nil
            )
        case let refusal as Refusal:
            if let error = refusal.error as? TransferError {
                self.init(error)
            } else if let error = refusal.error as? StatusError, error.status == .noPermission {
                let text = String(buffer: error.body)
                let denial = TransferError(.denied, text.isEmpty ? "the server's application does not allow it" : text)
                self.init(reported: denial, thrown: error, logged: nil)
            } else {
                self.init(reported: nil, thrown: refusal.error, logged: nil)
            }
        case let hidden as HiddenFailure:
            let reported = TransferError(.storeFailed, "the server's store failed; its log says why")
            self.init(reported: reported, thrown: StatusError(.database), logged: "\(hidden.error)")
        default:
            self.init(reported: nil, thrown: error, logged: nil)
        }
    }

    private init(reported: TransferError?, thrown: any Error, logged: String?) {
        self.reported = reported
        self.thrown = thrown
        self.logged = logged
    }

    /// Returns the error of a store as it is reported to the client.
    static func storeFailure(_ error: any Error) -> any Error {
        if error is TransferError || error is StatusError || error is CancellationError { return error }
        return HiddenFailure(error: error)
    }

    /// An error of a store that may contain internal details.
    struct HiddenFailure: Error {
        var error: any Error
    }

    /// Returns a status that never asks the client to try again.
    private static func status(_ code: TransferError.Code) -> Status {
        switch code {
        case .notFound: .unknown
        case .denied, .superseded: .noPermission
        case .invalidID, .invalidRequest: .illegalFormat
        default: .database
        }
    }
}
