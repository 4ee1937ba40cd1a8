import HHSocket
