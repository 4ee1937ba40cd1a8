import HHSocket

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TransferFile {
    /// The description as it is sent.
    var message: Hhsocket_TransferFile {
        var message = Hhsocket_TransferFile()
        message.size = self.size
        message.sha256 = Data(self.sha256.bytes)
        return message
    }
}
