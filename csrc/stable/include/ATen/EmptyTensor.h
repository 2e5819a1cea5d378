#include "../../tensor.h"
